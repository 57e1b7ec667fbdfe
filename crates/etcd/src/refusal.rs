//! Why etcd does not answer, in words: what is wrong, and the cure. Etcd's own words for a wrong
//! certificate are few (`bad certificate`), and those of a user without rights name no key.

use etcd_client::Error;
use pagemesh_wire::etcd::{Answer, Hello};
use rustls::{AlertDescription, CertificateError, Error as TlsError};
use std::error::Error as StdError;
use std::io;

/// A request that no member of etcd has answered: by whom it was asked last, and why not.
pub(crate) struct Failure {
    /// The URL of that member.
    pub(crate) member: String,
    /// What came of it.
    pub(crate) error: Error,
    /// The refusal that caused it; none if the member may answer later.
    pub(crate) refusal: Option<Refusal>,
}

/// A reason why etcd does not answer that lasts until a person mends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Name or password is wrong.
    Login,
    /// Etcd has no users.
    NoUsers,
    /// Etcd has users, and none is named here.
    Anonymous,
    /// The user may not do that.
    Rights,
    /// The member has a certificate of an authority that this host does not trust.
    Authority,
    /// The member has a certificate for other names.
    Name,
    /// The member's certificate is out of date, or something else is wrong with it.
    Certificate,
    /// Etcd wants another certificate of this host, or any at all.
    Identity,
    /// This host encrypts, and the member does not.
    Plain,
    /// The member encrypts, and this host does not.
    Encrypted,
    /// A file of this host cannot be used.
    File,
}

/// What a member says that does not accept this host's certificate, or misses it.
const IDENTITY_ALERTS: [AlertDescription; 9] = [
    AlertDescription::BadCertificate,
    AlertDescription::CertificateRequired,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::UnknownCA,
    AlertDescription::DecryptError,
    AlertDescription::AccessDenied,
];

impl Refusal {
    /// What the error tells.
    pub(crate) fn of(error: &Error) -> Option<Self> {
        match error {
            Error::InvalidArgs(_) => Some(Self::File),
            Error::GRpcStatus(status) => {
                Self::of_words(status.message()).or_else(|| Self::of_causes(status))
            }
            Error::TransportError(error) => Self::of_causes(error),
            _ => None,
        }
    }

    /// Whether every member would answer the same.
    pub(crate) fn is_everywhere(self) -> bool {
        matches!(
            self,
            Self::Login | Self::NoUsers | Self::Anonymous | Self::Rights | Self::File
        )
    }

    /// What etcd says itself.
    fn of_words(text: &str) -> Option<Self> {
        let known = [
            ("authentication failed", Self::Login),
            ("authentication is not enabled", Self::NoUsers),
            ("user name is empty", Self::Anonymous),
            ("permission denied", Self::Rights),
        ];
        let said = known.iter().find(|(words, _)| text.contains(words));
        said.map(|(_, refusal)| *refusal)
    }

    /// What the libraries say.
    fn of_causes(error: &(dyn StdError + 'static)) -> Option<Self> {
        let causes = causes(error);
        if let Some(error) = causes.iter().find_map(|cause| cause.downcast_ref()) {
            return Self::of_tls(error);
        }
        // Once the handshake is over, HTTP/2 hands on nothing but the words of an error.
        let says = |words: &str| causes.iter().any(|cause| cause.to_string().contains(words));
        let alerts = IDENTITY_ALERTS.map(|alert| TlsError::AlertReceived(alert).to_string());
        let alert = alerts.iter().any(|alert| says(alert));
        alert.then_some(Self::Identity)
    }

    /// Whether it comes of a connection that is encrypted.
    pub(crate) fn is_of_certificates(self) -> bool {
        matches!(
            self,
            Self::Authority | Self::Name | Self::Certificate | Self::Identity
        )
    }

    fn of_tls(error: &TlsError) -> Option<Self> {
        match error {
            TlsError::InvalidCertificate(why) => Some(match why {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Authority,
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => Self::Name,
                _ => Self::Certificate,
            }),
            TlsError::AlertReceived(alert) => {
                IDENTITY_ALERTS.contains(alert).then_some(Self::Identity)
            }
            TlsError::InconsistentKeys(_) => Some(Self::File),
            TlsError::InvalidMessage(_) => Some(Self::Plain),
            _ => None,
        }
    }

    fn words(self, hello: &Hello, member: &str) -> String {
        let tls = hello.tls.clone().unwrap_or_default();
        let user = hello.user.as_ref().map_or("", |(name, _)| name);
        let prefix = &hello.prefix;
        match self {
            Self::Login => format!(
                "name or password of user {user} is wrong: put the right password into the file of \
                 --control-password (`etcdctl user passwd {user}` sets another)"
            ),
            Self::NoUsers => format!(
                "it has no users, and user {user} is to log in: leave `{user}@` away in --control, \
                 or have it ask for users (`etcdctl auth enable`)"
            ),
            Self::Anonymous => "it has users, and none is named here: --control \
                                etcd://USER@HOST:2379,... and --control-password FILE"
                .into(),
            Self::Rights => {
                let who = match user {
                    "" => "the user in the name (CN) of this host's certificate".to_owned(),
                    user => format!("user {user}"),
                };
                let role = if user.is_empty() { "pagemesh" } else { user };
                format!(
                    "{who} may not read and write keys below {prefix}/: `etcdctl role \
                     grant-permission ROLE --prefix=true readwrite {prefix}/`, and `etcdctl user \
                     grant-role {role} ROLE`"
                )
            }
            Self::Authority => match &tls.authority {
                Some(path) => format!(
                    "the certificate of {member} was not made by the authority in {}: name the file \
                     that etcd's certificates were made with (--control-ca, etcdctl's --cacert)",
                    path.display()
                ),
                None => format!(
                    "the certificate of {member} was made by no authority that this host trusts: \
                     name the file of that one (--control-ca, etcdctl's --cacert)"
                ),
            },
            Self::Name => format!(
                "the certificate of {member} is for other names: write in --control the name or the \
                 address that is in it (`openssl x509 -noout -ext subjectAltName`), or have one made \
                 that has this one"
            ),
            Self::Certificate => format!(
                "the certificate of {member} cannot be used: see that it is in date, and this \
                 host's clock right"
            ),
            Self::Identity => match &tls.identity {
                Some((path, _)) => format!(
                    "{member} does not accept the certificate in {}: it has to be in date, for \
                     clients, and made by the authority that etcd trusts (its --trusted-ca-file)",
                    path.display()
                ),
                None => format!(
                    "{member} wants a certificate of this host: --control-cert FILE and \
                     --control-key FILE (etcdctl's --cert and --key)"
                ),
            },
            Self::Plain => format!(
                "{member} does not encrypt: write etcd:// without --control-ca, or start etcd with \
                 --cert-file and --key-file"
            ),
            Self::Encrypted => format!(
                "{member} encrypts: write etcds:// in --control, and --control-ca FILE unless this \
                 host trusts etcd's authority"
            ),
            Self::File => "a file of this host cannot be used".into(),
        }
    }
}

impl Failure {
    /// The answer to the daemon.
    pub(crate) fn answer(&self, hello: &Hello) -> Answer {
        let Self {
            member,
            error,
            refusal,
        } = self;
        let said = in_full(error);
        match refusal {
            Some(refusal) => {
                let words = refusal.words(hello, member);
                Answer::Refused(format!("{words} ({said})"))
            }
            None => Answer::Failed(format!("{member}: {said}")),
        }
    }
}

/// An error with its causes; those that repeat the one before are left out.
pub(crate) fn in_full(error: &Error) -> String {
    let mut text = match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        Error::Internal(why) | Error::InvalidArgs(why) => why.clone(),
        other => other.to_string(),
    };
    let first: Option<&(dyn StdError + 'static)> = match error {
        Error::GRpcStatus(status) => status.source(),
        Error::TransportError(error) => error.source(),
        _ => None,
    };
    for cause in first.map(causes).unwrap_or_default() {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// An error and its causes. What an I/O error wraps is no cause of it for the standard library.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    let mut all = vec![error];
    let mut last = error;
    loop {
        let wrapped = last
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|inner| inner as &(dyn StdError + 'static));
        match wrapped.or_else(|| last.source()) {
            Some(next) => last = next,
            None => return all,
        }
        all.push(last);
    }
}
