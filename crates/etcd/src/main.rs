//! `pagemesh-etcd`: speaks to etcd for a daemon, which starts it and talks to it over standard input
//! and output ([`pagemesh_wire::etcd`]). It ends when its input ends. It is a program of its own so
//! that the libraries it needs are compiled by those who have an etcd.

mod members;
mod refusal;
mod store;

use members::Members;
use pagemesh_wire::etcd::{Hello, Request, VERSION, read_frame, write_frame};
use std::io::{self, stdin, stdout};
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--version") {
        println!("pagemesh-etcd {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("pagemesh-etcd: {why} (`pagemesh daemon --control etcd://...` starts it)");
            ExitCode::from(2)
        }
    }
}

fn run() -> io::Result<()> {
    let Some((_, hello)) = read_frame::<Hello>(&mut stdin().lock())? else {
        return Err(io::Error::other("there is no daemon"));
    };
    if hello.version != VERSION {
        let why = format!(
            "the daemon speaks version {}, and this program {VERSION}: install them from one release",
            hello.version
        );
        return Err(io::Error::other(why));
    }
    let (sender, requests) = unbounded_channel();
    thread::spawn(move || {
        while let Ok(Some(request)) = read_frame(&mut stdin().lock()) {
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(hello, requests));
    Ok(())
}

/// Answers all requests; one does not wait for another.
async fn serve(hello: Hello, mut requests: UnboundedReceiver<(u64, Request)>) {
    let members = Rc::new(Members::new(hello));
    while let Some((id, request)) = requests.recv().await {
        let members = Rc::clone(&members);
        spawn_local(async move {
            let answer = store::answer(&members, request).await;
            let answer = answer.unwrap_or_else(|why| why.answer(members.hello()));
            // A daemon that is gone closes the input, too.
            let _ = write_frame(&mut stdout().lock(), id, &answer);
        });
    }
}
