//! The members of etcd: one of them is asked, and if that does not answer, the next one.

use crate::refusal::{Failure, Refusal, in_full};
use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use pagemesh_wire::etcd::{Hello, Password, Tls};
use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long a request may take with all its repetitions.
const LIMIT: Duration = Duration::from_secs(2);

/// How long a member may take to answer before the next one is asked.
const ATTEMPT: Duration = Duration::from_millis(400);

/// How long it may take to let a user in. Etcd hashes the password, which is meant to take long.
const LOGIN: Duration = Duration::from_millis(1_000);

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

    /// Which members of etcd are asked, and with which user and certificates.
    pub(crate) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Does something that may be done twice, on the first member that answers.
    pub(crate) async fn ask<T>(
        &self,
        what: impl AsyncFn(Client) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let end = Instant::now() + LIMIT;
        let mut refused = None;
        for attempt in 1.. {
            let at = self.present.get();
            let error = match self.attempt(at, &what).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.clients.borrow_mut()[at] = None;
            if is_outdated(&error) {
                // The user has to log in again, and to the same member.
                if Instant::now() < end {
                    continue;
                }
            }
            self.give_up(at);
            let failure = self.failure(at, error).await;
            match failure.refusal {
                Some(refusal) if refusal.is_everywhere() => return Err(failure),
                // It is more to the point than that another member is down.
                Some(_) => refused = Some(failure),
                None if Instant::now() > end => return Err(refused.unwrap_or(failure)),
                None => {}
            }
            if attempt % self.hello.endpoints.len() == 0
                && let Some(refused) = refused.take()
            {
                return Err(refused);
            }
            sleep(PAUSE).await;
        }
        unreachable!("numbers of attempts end")
    }

    async fn failure(&self, at: usize, error: Error) -> Failure {
        let member = self.hello.endpoints[at].clone();
        let mut refusal = Refusal::of(&error);
        if refusal.is_none() && was_cut_off(&error) {
            refusal = expects_the_other(&member).await;
        }
        Failure {
            member,
            error,
            refusal,
        }
    }

    async fn attempt<T>(
        &self,
        at: usize,
        what: &impl AsyncFn(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let slow = |_| Error::Internal("it does not answer in time".into());
        let limit = if self.hello.user.is_some() {
            LOGIN
        } else {
            ATTEMPT
        };
        let client = timeout(limit, self.client(at)).await.map_err(slow)??;
        timeout(ATTEMPT, what(client)).await.map_err(slow)?
    }

    async fn client(&self, at: usize) -> Result<Client, Error> {
        if let Some(client) = &self.clients.borrow()[at] {
            return Ok(client.clone());
        }
        let endpoint = &self.hello.endpoints[at];
        let client = Client::connect([endpoint], Some(self.options(endpoint)?)).await?;
        self.clients.borrow_mut()[at] = Some(client.clone());
        Ok(client)
    }

    fn options(&self, endpoint: &str) -> Result<ConnectOptions, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(ATTEMPT)
            .with_require_leader(true);
        if let Some((name, password)) = &self.hello.user {
            options = options.with_user(name, read_password(password)?);
        }
        if let Some(tls) = &self.hello.tls {
            options = options.with_tls(tls_options(tls, endpoint)?);
        }
        Ok(options)
    }

    /// A member does not answer, or the connection to it does not work: the next one is asked.
    fn give_up(&self, at: usize) {
        if self.present.get() == at {
            self.present.set((at + 1) % self.hello.endpoints.len());
        }
    }
}

/// Whether the user has to log in again: the login has expired, or users were changed since.
fn is_outdated(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    let text = status.message();
    text.contains("invalid auth token") || text.contains("revision of auth store is old")
}

/// Whether the member took the connection and ended it: it has died, or only one of the two sides
/// encrypts.
fn was_cut_off(error: &Error) -> bool {
    let said = in_full(error).to_lowercase();
    let ends = ["eof", "broken pipe", "connection reset", "closed"];
    ends.iter().any(|end| said.contains(end))
}

/// Whether the member encrypts if this host does not, and the other way round. Neither side can tell
/// that from what the other one sends.
async fn expects_the_other(member: &str) -> Option<Refusal> {
    let options = ConnectOptions::new().with_connect_timeout(ATTEMPT);
    let (url, options, expected) = match member.strip_prefix("https://") {
        Some(rest) => (format!("http://{rest}"), options, Refusal::Plain),
        None => {
            let url = member.replacen("http://", "https://", 1);
            // No authority is trusted, so a handshake ends with the error of an untrusted certificate.
            let options = options.with_tls(TlsOptions::new());
            (url, options, Refusal::Encrypted)
        }
    };
    let mut client = Client::connect([url], Some(options)).await.ok()?;
    let answer = timeout(ATTEMPT, client.get("", None)).await.ok()?;
    let error = answer.err()?;
    let so = match expected {
        Refusal::Encrypted => Refusal::of(&error).is_some_and(Refusal::is_of_certificates),
        _ => in_full(&error).starts_with("etcdserver:"),
    };
    so.then_some(expected)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let unread = |why| Error::InvalidArgs(format!("cannot read {}: {why}", path.display()));
    fs::read(path).map_err(unread)
}

fn read_password(password: &Password) -> Result<String, Error> {
    Ok(match password {
        Password::Is(password) => password.clone(),
        Password::In(path) => String::from_utf8_lossy(&read(path)?).trim_end().to_owned(),
    })
}

fn tls_options(tls: &Tls, endpoint: &str) -> Result<TlsOptions, Error> {
    let mut options = match &tls.authority {
        Some(path) => TlsOptions::new().ca_certificate(Certificate::from_pem(read(path)?)),
        None => TlsOptions::new().with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        options = options.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    // The brackets of an address are no part of what is in a certificate.
    if let Some((address, _)) = endpoint
        .strip_prefix("https://[")
        .and_then(|rest| rest.split_once(']'))
    {
        options = options.domain_name(address);
    }
    Ok(options)
}
