//! Where the daemon's socket is.

use std::ffi::OsString;
use std::path::PathBuf;

/// The environment variable that names the daemon's socket.
pub const SOCKET_VARIABLE: &str = "PAGEMESH_SOCKET";

/// Paths where the daemon may listen, best first: only `$PAGEMESH_SOCKET` if that is set; otherwise
/// the user's own daemon under `$XDG_RUNTIME_DIR`, then the host's.
#[must_use]
pub fn socket_paths() -> Vec<PathBuf> {
    choose(
        std::env::var_os(SOCKET_VARIABLE),
        std::env::var_os("XDG_RUNTIME_DIR"),
    )
}

fn choose(socket: Option<OsString>, runtime: Option<OsString>) -> Vec<PathBuf> {
    if let Some(path) = socket.filter(|path| !path.is_empty()) {
        return vec![path.into()];
    }
    let own = runtime
        .filter(|dir| !dir.is_empty())
        .map(|dir| PathBuf::from(dir).join("pagemesh/pagemesh.sock"));
    own.into_iter()
        .chain([PathBuf::from("/run/pagemesh/pagemesh.sock")])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_beats_the_user_beats_the_host() {
        let host = PathBuf::from("/run/pagemesh/pagemesh.sock");
        let own = PathBuf::from("/run/user/7/pagemesh/pagemesh.sock");
        let runtime = || Some("/run/user/7".into());
        assert_eq!(
            choose(None, None),
            ["/run/pagemesh/pagemesh.sock"].map(PathBuf::from)
        );
        assert_eq!(choose(None, runtime()), [own.clone(), host.clone()]);
        assert_eq!(choose(Some("".into()), runtime()), [own, host]);
        assert_eq!(choose(Some("/x".into()), runtime()), [PathBuf::from("/x")]);
    }
}
