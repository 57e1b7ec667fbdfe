//! A Redis on node 1 that keeps everything in memory, asked from node 0.

use super::super::agent::Order;
use super::super::cpu_slots::CpuSlots;
use super::super::testbed::Testbed;
use super::{Peer, Times, install};
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

const PORT: u16 = 7998;

pub(super) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts it with the settings that its documentation advises for latency: nothing is written
    /// to disk, its processors are its own. It sets TCP_NODELAY itself; it cannot spin.
    pub(super) fn start(testbed: &Testbed, cpu_slots: CpuSlots) -> Result<Self> {
        install::need(&["redis-server"], "redis-server")?;
        let mut address = testbed.address(1);
        address.set_port(PORT);
        let mut command = testbed.command(1, "redis-server");
        command
            .args(["--bind", &address.ip().to_string()])
            .args(["--port", &PORT.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            // Only node 0 is on that network.
            .args(["--protected-mode", "no"])
            .arg("--dir")
            .arg(testbed.directory());
        if let Some(cpu) = cpu_slots.processor(1) {
            command.args(["--server_cpulist", &cpu.to_string()]);
        }
        pagemesh_os::netns::die_with_parent(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start redis-server")?;
        Ok(Self { child, address })
    }
}

impl Peer for Server {
    fn measure(&mut self, testbed: &mut Testbed, count: u32) -> Result<Times> {
        let (to, spin) = (self.address, true);
        let get = testbed.ask(0, &Order::RedisGet { to, count, spin })?;
        let add = testbed.ask(0, &Order::RedisAdd { to, count, spin })?;
        Ok(vec![("get".to_owned(), get), ("fetch_add".to_owned(), add)])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
