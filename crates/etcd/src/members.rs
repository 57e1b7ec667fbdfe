//! The members of etcd: one of them is asked, and if that does not answer, the next one.

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use pagemesh_wire::etcd::Hello;
use std::cell::{Cell, RefCell};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long a request may take with all its repetitions.
const LIMIT: Duration = Duration::from_secs(2);

/// How long a member may take to answer before the next one is asked.
const ATTEMPT: Duration = Duration::from_millis(400);

/// Between one attempt that failed and the next.
const PAUSE: Duration = Duration::from_millis(25);

/// See the module.
pub(crate) struct Members {
    hello: Hello,
    /// A connection to each.
    clients: RefCell<Vec<Option<Client>>>,
    /// The one that answered last.
    present: Cell<usize>,
}

impl Members {
    pub(crate) fn new(hello: Hello) -> Self {
        let clients = hello.endpoints.iter().map(|_| None).collect();
        Self {
            hello,
            clients: RefCell::new(clients),
            present: Cell::new(0),
        }
    }

    /// The beginning of all keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.hello.prefix
    }

    /// Does something that may be done twice, on the first member that answers.
    pub(crate) async fn ask<T>(
        &self,
        what: impl AsyncFn(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let end = Instant::now() + LIMIT;
        loop {
            let at = self.present.get();
            let attempt = async {
                let client = self.client(at).await?;
                what(client).await
            };
            let slow = |_| Error::Internal("no member of etcd answers in time".into());
            let why = match timeout(ATTEMPT, attempt).await.map_err(slow) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(why)) | Err(why) => why,
            };
            self.give_up(at);
            if Instant::now() > end || is_refusal(&why) {
                return Err(why);
            }
            sleep(PAUSE).await;
        }
    }

    async fn client(&self, at: usize) -> Result<Client, Error> {
        if let Some(client) = &self.clients.borrow()[at] {
            return Ok(client.clone());
        }
        let endpoint = &self.hello.endpoints[at];
        let client = Client::connect([endpoint], Some(self.options())).await?;
        self.clients.borrow_mut()[at] = Some(client.clone());
        Ok(client)
    }

    fn options(&self) -> ConnectOptions {
        let Hello {
            user,
            authority,
            identity,
            ..
        } = &self.hello;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(ATTEMPT)
            .with_require_leader(true);
        if let Some((name, password)) = user {
            options = options.with_user(name, password);
        }
        if let Some(authority) = authority {
            let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(authority));
            if let Some((certificate, key)) = identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            options = options.with_tls(tls);
        }
        options
    }

    /// A member does not answer, or the connection to it does not work: the next one is asked.
    fn give_up(&self, at: usize) {
        self.clients.borrow_mut()[at] = None;
        if self.present.get() == at {
            self.present.set((at + 1) % self.hello.endpoints.len());
        }
    }
}

/// Whether every member would answer the same: the user may not do this.
fn is_refusal(why: &Error) -> bool {
    let Error::GRpcStatus(status) = why else {
        return false;
    };
    let text = status.message();
    text.contains("permission denied") || text.contains("authentication failed")
}
