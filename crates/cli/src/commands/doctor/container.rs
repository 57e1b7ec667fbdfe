//! Containers and their restrictions.

use super::{Check, read};
use pagemesh_os::uffd::DEVICE;
use std::path::Path;

pub(super) fn checks() -> Vec<Check> {
    let mut checks: Vec<Check> = container().into_iter().collect();
    checks.push(namespaces());
    checks
}

/// A hint only: restrictions show in the other checks.
fn container() -> Option<Check> {
    let kind = kind()?;
    let status = read("/proc/self/status").unwrap_or_default();
    let filtered = status
        .lines()
        .any(|line| line.starts_with("Seccomp:") && line.ends_with('2'));
    let seccomp = if filtered {
        "a seccomp filter is on"
    } else {
        "no seccomp filter"
    };
    let found = format!("this is a {kind} container; {seccomp}");
    Some(if filtered && !Path::new(DEVICE).exists() {
        Check::warning(
            "container",
            format!("{found}; the usual filter forbids userfaultfd(2)"),
            format!(
                "start it with --device {DEVICE} (Kubernetes: a device plugin), not with --privileged"
            ),
        )
    } else {
        Check::ok("container", found)
    })
}

fn kind() -> Option<String> {
    if Path::new("/.dockerenv").exists() {
        return Some("Docker".to_owned());
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("Podman".to_owned());
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("Kubernetes".to_owned());
    }
    read("/run/systemd/container").filter(|kind| !kind.is_empty())
}

/// Needed by nothing but `pagemesh sandbox`, which does without if it must.
fn namespaces() -> Check {
    let found = match pagemesh_os::netns::Namespace::new() {
        Ok(_) => "pagemesh sandbox gives each node a network namespace".to_owned(),
        Err(_) => "pagemesh sandbox uses 127.0.0.x (as root it uses network namespaces)".to_owned(),
    };
    Check::ok("namespaces", found)
}
