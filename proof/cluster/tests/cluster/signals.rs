//! Signals to processes that wait.

use crate::support::{A_WHILE, Cluster, Player, eventually, load, sleeps_in, store};
use pagemesh::PAGE_SIZE;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

fn expect_end_by_interrupt(scripted_node: Player, what: &str) {
    scripted_node.signal(Signal::INT);
    let status = scripted_node.end();
    assert_eq!(
        status.signal(),
        Some(Signal::INT.as_raw()),
        "{what}: {status}"
    );
}

#[test]
fn an_interrupt_ends_every_wait() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("waits", 1)[0];
    let guard = here.segment().lock(1).lock().unwrap();
    for order in ["barrier 1 2", "lock 1", "change 0 0", "condition 3 2"] {
        let mut scripted_node = cluster.scripted_node(1, "waits");
        if order.starts_with("condition") {
            assert_eq!(scripted_node.ask("lock 2"), "locked");
        }
        scripted_node.tell(order);
        scripted_node.wait_until_it_sleeps_in("skb");
        scripted_node.expect_silence();
        // By then the condition has let its lock go.
        drop(here.segment().lock(2).lock().unwrap());
        expect_end_by_interrupt(scripted_node, order);
    }
    drop(guard);
    let mut after = cluster.scripted_node(1, "waits");
    assert_eq!(after.ask("lock 1"), "locked");
    assert_eq!(after.ask("lock 2"), "locked");
}

#[test]
fn a_command_that_was_stopped_waits_on_for_its_answer() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let mut command = cluster
        .node(0)
        .command(env!("CARGO_BIN_EXE_pagemesh-under-test"));
    command
        .args(["members", "-o", "json"])
        .stdout(Stdio::piped());
    cluster.signal(0, Signal::STOP).unwrap();
    let asking = command.spawn().unwrap();
    eventually("it waits for the answer", || sleeps_in(asking.id(), "skb"));
    let process = Pid::from_child(&asking);
    for signal in [Signal::STOP, Signal::CONT, Signal::STOP, Signal::CONT] {
        kill_process(process, signal).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    cluster.signal(0, Signal::CONT).unwrap();
    let answer = asking.wait_with_output().unwrap();
    assert!(answer.status.success(), "{answer:?}");
}

/// Runs `work` while node 0 is stopped, so that its pages do not come.
fn while_node_0_is_away(cluster: &Cluster, work: impl FnOnce()) {
    cluster.signal(0, Signal::STOP).unwrap();
    work();
    cluster.signal(0, Signal::CONT).unwrap();
}

#[test]
fn an_interrupt_ends_a_thread_that_waits_for_a_page() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("absent", 4)[0];
    for page in 0..4 {
        store(here, page * PAGE_SIZE, 5);
    }
    let orders = ["load 0", "store 4096 1", "send 8192 8"];
    for order in orders {
        let mut scripted_node = cluster.scripted_node(1, "absent");
        while_node_0_is_away(&cluster, || {
            scripted_node.tell(order);
            scripted_node.wait_until_it_sleeps_in("userfault");
            expect_end_by_interrupt(scripted_node, order);
        });
    }
    let mut after = cluster.scripted_node(1, "absent");
    for page in 0..4 {
        assert_eq!(after.ask(&format!("load {}", page * PAGE_SIZE)), "5");
        assert_eq!(after.ask(&format!("store {} 6", page * PAGE_SIZE)), "done");
        assert_eq!(load(here, page * PAGE_SIZE), 6);
    }
}

#[test]
fn a_handled_signal_interrupts_a_wait_which_can_be_tried_again() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("handled", 1);
    let mut scripted_node = cluster.scripted_node(1, "handled --handler");
    let guard = maps[0].segment().lock(1).lock().unwrap();
    for order in ["barrier 1 2", "lock 1", "change 0 0"] {
        scripted_node.tell(order);
        scripted_node.wait_until_it_sleeps_in("skb");
        let answer = signal_until_it_answers(&scripted_node);
        assert!(answer.contains("interrupted"), "{order}: {answer}");
    }
    // It had not arrived, and does not hold the lock.
    scripted_node.tell("barrier 1 2");
    scripted_node.expect_silence();
    maps[0].segment().barrier(1, 2).wait().unwrap();
    scripted_node.expect("passed");
    drop(guard);
    drop(maps[0].segment().lock(1).lock().unwrap());
    assert_eq!(scripted_node.ask("lock 1"), "locked");
}

/// A signal that comes before the wait, or while it begins, interrupts nothing.
fn signal_until_it_answers(scripted_node: &Player) -> String {
    for _ in 0..100 {
        scripted_node.signal(Signal::USR1);
        if let Some(answer) = scripted_node.hear_within(A_WHILE) {
            return answer;
        }
    }
    panic!("it goes on waiting");
}

#[test]
fn signals_while_a_page_is_under_way_ask_for_it_only_once() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("once", 2)[0];
    for (at, order) in [(0, "load 0"), (PAGE_SIZE, "send 4096 8")] {
        store(here, at, 9);
        let mut scripted_node = cluster.scripted_node(1, "once --handler");
        let count = || ["asked", "resent"].map(|name| cluster.counter(1, name));
        let [asked, resent] = count();
        while_node_0_is_away(&cluster, || {
            scripted_node.tell(order);
            scripted_node.wait_until_it_sleeps_in("userfault");
            for _ in 0..20 {
                scripted_node.signal(Signal::USR1);
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        });
        assert_eq!(scripted_node.hear(), "9", "{order}");
        let [asked_then, resent_then] = count();
        assert!(asked_then - asked <= 1 + resent_then - resent, "{order}");
        assert!(
            resent_then - resent < 20,
            "{order}: by the clock, not by the signals"
        );
    }
}

#[test]
fn a_process_stopped_while_it_waits_for_a_page_goes_on_later() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("paused", 2)[0];
    // A system call goes on until it has the page, and stops afterwards.
    for (at, order, seen) in [(0, "load 0", 4), (PAGE_SIZE, "send 4096 8", 3)] {
        store(here, at, 3);
        let mut scripted_node = cluster.scripted_node(1, "paused");
        while_node_0_is_away(&cluster, || {
            scripted_node.tell(order);
            scripted_node.wait_until_it_sleeps_in("userfault");
            scripted_node.signal(Signal::STOP);
        });
        scripted_node.expect_silence();
        // Taken away before the process has seen it.
        store(here, at, 4);
        scripted_node.signal(Signal::CONT);
        let heard = scripted_node.hear();
        assert!(
            heard == "4" || heard == seen.to_string(),
            "{order}: {heard}"
        );
    }
}

/// Profilers and job control interrupt a system call on an absent page again and
/// again, since the kernel lets it end only with the page: each time there is
/// another fault, and no request.
#[test]
fn profilers_and_pauses_ask_for_a_page_only_once() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("interrupted", 3)[0];
    for (page, how) in ["profile", "stop", "both"].into_iter().enumerate() {
        store(here, page * PAGE_SIZE, 9);
        let mut scripted_node = cluster.scripted_node(1, "interrupted");
        if how != "stop" {
            assert_eq!(scripted_node.ask("profile"), "done");
        }
        let count = || ["asked", "resent", "kernel_faults"].map(|name| cluster.counter(1, name));
        let [asked, resent, faults] = count();
        while_node_0_is_away(&cluster, || {
            scripted_node.tell(&format!("send {} 8", page * PAGE_SIZE));
            scripted_node.wait_until_it_sleeps_in("userfault");
            if how == "profile" {
                // Its clock runs while it does: begin.
                scripted_node.signal(Signal::PROF);
            } else {
                scripted_node.signal(Signal::STOP);
            }
            // However busy the machine is.
            eventually("the kernel insists", || count()[2] > faults + 20);
        });
        scripted_node.signal(Signal::CONT);
        assert_eq!(scripted_node.hear(), "9", "{how}");
        let [asked_then, resent_then, _] = count();
        assert!(asked_then - asked <= 1 + resent_then - resent, "{how}");
        assert!(resent_then - resent < 20, "{how}: by the clock only");
    }
}
