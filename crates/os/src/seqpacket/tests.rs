use super::*;
use rustix::net::bind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pagemesh-{name}-{}", std::process::id()))
}

/// Waits in this thread while another one interrupts it, and in the end does something else.
fn interrupted<T>(in_the_end: impl FnOnce() + Send, wait: impl FnOnce() -> T) -> T {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a handler that does nothing, for a signal that no other test uses; and the name of this
    // thread, which outlives the scope.
    let here = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGWINCH, &raw const action, std::ptr::null_mut());
        libc::pthread_self()
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(1));
                // SAFETY: that thread waits for this one.
                unsafe { libc::pthread_kill(here, libc::SIGWINCH) };
            }
            in_the_end();
        });
        wait()
    })
}

#[test]
fn packets_keep_their_bounds_and_carry_descriptors() {
    let (one, other) = Socket::pair().unwrap();
    one.send(b"first", &[one.as_fd(), other.as_fd()]).unwrap();
    one.send(b"second", &[]).unwrap();
    let mut buffer = [0; 64];
    let first = other.recv(&mut buffer).unwrap().unwrap();
    assert_eq!((&buffer[..first.len], first.fds.len()), (&b"first"[..], 2));
    let second = other.recv_now(&mut buffer).unwrap().unwrap();
    assert_eq!(
        (&buffer[..second.len], second.fds.len()),
        (&b"second"[..], 0)
    );
    let none = other.recv_now(&mut buffer).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    drop(first);
    drop(one);
    assert!(other.recv(&mut buffer).unwrap().is_none());
    let gone = other.send(b"anybody?", &[]).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn who_does_not_accept_is_not_waited_for_for_ever() {
    let path = scratch("full");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let patience = Duration::from_millis(10);
    let mut line = Vec::new();
    let late = loop {
        match Socket::connect_within(&path, patience) {
            Ok(socket) => line.push(socket),
            Err(error) => break error,
        }
        assert!(line.len() < 100_000, "no queue is that long");
    };
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    let disturbed = interrupted(|| {}, || Socket::connect_within(&path, patience));
    assert_eq!(disturbed.unwrap_err().kind(), io::ErrorKind::TimedOut);
    // The time limit of connecting does not apply to sending.
    let first = listener.accept().unwrap();
    line[0].send(b"here", &[]).unwrap();
    assert_eq!(first.recv(&mut [0; 8]).unwrap().unwrap().len, 4);
    drop(listener);
    let _ = std::fs::remove_file(path);
}

#[test]
fn a_time_limit_makes_signals_end_a_wait_but_not_the_sure_one() {
    let (one, other) = Socket::pair().unwrap();
    one.set_receive_timeout(Duration::from_secs(60)).unwrap();
    let mut buffer = [0; 64];
    let broken = interrupted(|| {}, || one.recv(&mut buffer));
    assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::Interrupted);
    let answer = || other.send(b"late", &[]).unwrap();
    let heard = interrupted(answer, || one.recv_surely(&mut buffer));
    assert_eq!(heard.unwrap().unwrap().len, 4);
    // Until the other end has no room.
    one.set_send_timeout(Duration::from_secs(60)).unwrap();
    while one.send_now(&buffer, &[]).is_ok() {}
    let broken = interrupted(|| {}, || one.send(&buffer, &[]));
    assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::Interrupted);
    let make_room = || while other.recv_now(&mut [0; 64]).is_ok() {};
    interrupted(make_room, || one.send_surely(&buffer, &[])).unwrap();
}

#[test]
fn what_an_end_said_before_it_went_is_heard_although_it_read_nothing() {
    for skip in [false, true] {
        let (one, other) = Socket::pair().unwrap();
        one.send(b"a question", &[]).unwrap();
        other.send(b"first", &[]).unwrap();
        other.send(b"last words", &[]).unwrap();
        drop(other);
        let mut buffer = [0; 64];
        if skip {
            one.skip_now().unwrap();
        } else {
            let first = one.recv(&mut buffer).unwrap().unwrap();
            assert_eq!(&buffer[..first.len], b"first");
        }
        let last = one.recv_now(&mut buffer).unwrap().unwrap();
        assert_eq!(&buffer[..last.len], b"last words");
        assert!(one.recv(&mut buffer).unwrap().is_none());
    }
}

#[test]
fn only_sockets_of_processes_are_adopted() {
    let (one, other) = Socket::pair().unwrap();
    Socket::adopt(one.into()).unwrap().send(b"x", &[]).unwrap();
    assert!(other.recv(&mut [0; 8]).is_ok());
    let (stream, _) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(Socket::adopt(stream.into()).is_err());
    assert!(Socket::adopt(std::io::pipe().unwrap().0.into()).is_err());
}

#[test]
fn a_socket_becomes_another_connection() {
    let (one, first) = Socket::pair().unwrap();
    let (by, second) = Socket::pair().unwrap();
    one.supplant(&by).unwrap();
    drop(by);
    one.send(b"x", &[]).unwrap();
    assert!(second.recv(&mut [0; 8]).unwrap().is_some());
    assert!(first.recv(&mut [0; 8]).unwrap().is_none(), "closed");
}

#[test]
fn a_packet_stays_until_it_is_skipped() {
    let (one, other) = Socket::pair().unwrap();
    one.send(b"first", &[one.as_fd()]).unwrap();
    one.send(b"second", &[]).unwrap();
    let mut buffer = [0; 64];
    for _ in 0..2 {
        let seen = other.peek_now(&mut buffer).unwrap().unwrap();
        assert_eq!((&buffer[..seen.len], seen.fds.len()), (&b"first"[..], 1));
    }
    other.skip_now().unwrap();
    let next = other.peek_now(&mut buffer).unwrap().unwrap();
    assert_eq!((&buffer[..next.len], next.fds.len()), (&b"second"[..], 0));
    other.skip_now().unwrap();
    other.skip_now().unwrap();
    assert_eq!(
        other.peek_now(&mut buffer).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    let keeper = other.as_fd().try_clone_to_owned().unwrap();
    other.hang_up();
    assert!(
        one.recv(&mut buffer).unwrap().is_none(),
        "despite {keeper:?}"
    );
}

#[test]
fn a_packet_that_does_not_fit_is_an_error_not_a_fragment() {
    let (one, other) = Socket::pair().unwrap();
    one.send(b"more than four", &[]).unwrap();
    let error = other.recv(&mut [0; 4]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let fds = vec![one.as_fd(); MAX_FDS + 1];
    assert!(one.send(b"too many", &fds).is_err());
}

#[test]
fn a_listener_replaces_the_dead_and_respects_the_living() {
    let path = scratch("listener");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let alive = Listener::bind(&path, 0o600).unwrap_err();
    assert_eq!(alive.kind(), io::ErrorKind::AddrInUse);
    // The refused attempt tested the path by connecting: its connection is the first in the queue.
    drop(listener.accept().unwrap());

    let client = Socket::connect(&path).unwrap();
    let server = listener.accept().unwrap();
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    let caller = server.peer().unwrap();
    assert_eq!(caller.pid, std::process::id() as i32);
    assert_eq!(caller.credentials.uid, rustix::process::geteuid().as_raw());
    client.send(b"hello", &[]).unwrap();
    assert!(server.recv(&mut [0; 8]).unwrap().is_some());

    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());

    // A socket whose listener died without removing it.
    let dead = new_socket(SocketFlags::CLOEXEC).unwrap();
    bind(&dead, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    drop(dead);
    assert!(Listener::bind(&path, 0o600).is_ok());
    assert!(!path.exists());
}

#[test]
fn a_file_is_never_replaced_by_a_socket() {
    let path = scratch("file");
    std::fs::write(&path, "precious").unwrap();
    assert!(Listener::bind(&path, 0o600).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
}
