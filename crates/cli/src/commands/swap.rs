//! `pagemesh swap`: memory of the cluster as swap space of this host.

mod device;
mod file;
mod groups;
mod host;
mod off;
mod on;
mod room;
mod serve;
mod state;
mod status;

use crate::exit::Exit;
use crate::global::Global;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Use memory of the cluster as swap space of this host
#[derive(Args)]
#[command(
    after_help = "Example: pagemesh swap on --size 16G\n         pagemesh swap status\n         \
                  pagemesh swap off\n\
                  Needs root, FUSE and loop devices (docs/far-memory.md)."
)]
pub(crate) struct Swap {
    #[command(subcommand)]
    order: Order,
    /// Where the state of the swap device lies; a host has one device for each such directory
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/pagemesh-swap"
    )]
    state: PathBuf,
}

#[derive(Subcommand)]
enum Order {
    /// Make a swap device and use it
    On(on::On),
    /// Bring back what is swapped out, and remove the device
    Off(off::Off),
    /// Say how much is swapped out, and whether the device is safe
    Status(status::Status),
    /// Serve the device, until it is unmounted
    #[command(hide = true)]
    Serve(serve::Serve),
}

impl Swap {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        match self.order {
            Order::On(order) => order.run(global, &self.state),
            Order::Off(order) => order.run(global, &self.state),
            Order::Status(order) => order.run(global, &self.state),
            Order::Serve(order) => order.run(global, &self.state),
        }
    }
}
