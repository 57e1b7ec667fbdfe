//! Kernel version, page size, and the right to serve page faults.

use super::{Check, read};
use pagemesh_os::uffd::{DEVICE, Features, Kind, Uffd};
use pagemesh_wire::PAGE_SIZE;
use std::io::ErrorKind;

/// Oldest kernel that has all that is needed.
const OLDEST: (u32, u32) = (6, 4);

/// Since this one, one page can be made to fail.
const POISON: (u32, u32) = (6, 6);

/// Since this one, scans are cheap, too.
const BEST: (u32, u32) = (6, 7);

pub(super) fn checks() -> Vec<Check> {
    vec![
        version().of_the_kernel(),
        page_size().of_the_kernel(),
        rights(),
        features().of_the_kernel(),
    ]
}

fn version() -> Check {
    const NAME: &str = "kernel";
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let cure = "boot Linux 6.7 or later (Debian 12: the kernel of bookworm-backports; Ubuntu 24.04 has 6.8)";
    match parse_version(&release) {
        Some(version) if version < OLDEST => Check::blocker(
            NAME,
            format!(
                "Linux {release}; 6.4 is the oldest that can write-protect shared pages as they arrive"
            ),
            cure,
        ),
        Some(version) if version < POISON => Check::warning(
            NAME,
            format!(
                "Linux {release}; works, but an access to a page that is lost ends its program by a \
                 SIGBUS that does not tell the address (6.6 and later do)"
            ),
            cure,
        ),
        Some(version) if version < BEST => Check::warning(
            NAME,
            format!("Linux {release}; works, without the cheap scans of memory that came in 6.7"),
            cure,
        ),
        Some(_) => Check::ok(NAME, format!("Linux {release}")),
        None => Check::warning(NAME, format!("Linux {release:?}: not understood"), cure),
    }
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn page_size() -> Check {
    const NAME: &str = "page size";
    let size = rustix::param::page_size();
    if size == PAGE_SIZE {
        Check::ok(NAME, format!("{size} bytes"))
    } else {
        Check::blocker(
            NAME,
            format!("{size} bytes; all hosts of a cluster must have pages of {PAGE_SIZE}"),
            "boot a kernel built with 4 KiB pages (Raspberry Pi 5: kernel=kernel8.img in config.txt)",
        )
    }
}

fn rights() -> Check {
    const NAME: &str = "page faults";
    match Uffd::create(None) {
        Ok((_, Kind::Device)) => Check::ok(NAME, format!("served through {DEVICE}")),
        Ok((_, Kind::SystemCall)) => Check::ok(NAME, "served through userfaultfd(2)"),
        Ok((_, Kind::UserModeOnly)) => Check::warning(
            NAME,
            "served for user mode only: read(2) into memory that is not here fails with EFAULT, \
             unless a daemon run by root lends its device",
            device_cure(),
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Check::blocker(
            NAME,
            format!("userfaultfd is forbidden here: {}", closed_ways()),
            device_cure(),
        ),
        Err(error) => Check::blocker(
            NAME,
            format!("no userfaultfd: {error}"),
            "use a kernel built with CONFIG_USERFAULTFD=y (gVisor and some hardened kernels have none)",
        )
        .of_the_kernel(),
    }
}

/// Why neither the device nor the system call helps.
fn closed_ways() -> String {
    let device = match std::fs::File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => format!("{DEVICE} opens but makes no descriptor"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            format!(
                "{DEVICE} does not exist (Linux 6.1 and later have it; containers must be given it)"
            )
        }
        Err(error) => format!("{DEVICE}: {error}"),
    };
    let sysctl =
        read("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_else(|| "absent".to_owned());
    format!(
        "{device}; vm.unprivileged_userfaultfd={sysctl}; no CAP_SYS_PTRACE; or seccomp forbids the call"
    )
}

fn device_cure() -> String {
    format!(
        "as root: groupadd -f pagemesh && usermod -aG pagemesh $USER && echo \
         'KERNEL==\"userfaultfd\", GROUP=\"pagemesh\", MODE=\"0660\"' > /etc/udev/rules.d/60-pagemesh.rules \
         && udevadm control --reload && udevadm trigger {DEVICE}, then log in again; \
         in a container: --device {DEVICE}; or for now: chmod 666 {DEVICE}"
    )
}

fn features() -> Check {
    const NAME: &str = "fault features";
    match Features::offered() {
        Ok(features) if !features.sufficient() => Check::blocker(
            NAME,
            "this kernel cannot serve missing, minor and write-protection faults of shared memory",
            "boot Linux 6.7 or later on x86-64 or arm64",
        ),
        Ok(features) if !features.poison() => Check::warning(
            NAME,
            "missing, minor and write-protection faults; no poisoned pages: \
             an access to a page that is lost for good waits instead of raising SIGBUS",
            "boot Linux 6.6 or later",
        ),
        Ok(_) => Check::ok(
            NAME,
            "missing, minor and write-protection faults, poisoned pages",
        ),
        Err(_) => Check::warning(NAME, "cannot be asked for", "see page faults"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(parse_version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(parse_version("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(parse_version("7.0"), Some((7, 0)));
        assert_eq!(parse_version("linux"), None);
        assert!((6, 18) > BEST && (6, 1) < OLDEST);
    }
}
