//! Daemons, in this process and in others.

mod bad_input;
mod capabilities;
mod cluster;
mod common;
mod failures;
mod hammer;
mod latency;
mod sessions;
mod sysv;

#[test]
#[ignore = "not a test, but what other tests start"]
fn child_process() {
    let Some((role, socket)) = common::role() else {
        return;
    };
    match role.as_str() {
        "latency" => latency::writer(&socket),
        _ => failures::program(&role, &socket),
    }
}
