//! The policies a segment can have. Only this file knows which there are; the rest of the core
//! calls the [`Hooks`] of a [`Policy`].

mod backup;
#[cfg(any(test, feature = "example-policies"))]
mod broadcast;
mod clock;
mod files;
mod hooks;
mod named;
mod private;
mod release;
mod sequential;
mod views;

use hooks::Open;
pub(crate) use hooks::{
    Due, Found, Gone, Hooks, Outgoing, ProgramRequest, SyncHooks, Waiting, Who,
};
use named::named;
pub use release::messages as release_messages;
pub use sequential::messages as sequential_messages;

use pagemesh_wire::SegmentId;
use pagemesh_wire::peer::{self, Refusal, SegmentSpec};
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// Registers policies: each is a variant of [`Policy`].
macro_rules! policies {
    ($($(#[$if:meta])* $name:ident($state:ty),)*) => {
        /// What this node knows of the pages of one segment.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[expect(
            clippy::large_enum_variant,
            reason = "one a segment, and every fault goes through it: room costs less than a way"
        )]
        pub(crate) enum Policy {
            $($(#[$if])* $name($state),)*
        }

        impl Policy {
            /// Nothing is known of any page yet.
            ///
            /// # Errors
            /// If this daemon does not have the policy, or not with these settings.
            pub(crate) fn open(
                segment: SegmentId,
                pages: u32,
                spec: &SegmentSpec,
            ) -> Result<Self, Refusal> {
                let chosen = spec.policy;
                $($(#[$if])*
                if let Some(opened) = <$state as Open>::open(segment, pages, chosen) {
                    return with_replicas(Self::$name(opened?), spec.replicas);
                })*
                let why = format!("this daemon has no policy {chosen:?}; use one that `pagemesh create --help` names");
                Err(Refusal::Invalid(why))
            }
        }

        impl Deref for Policy {
            type Target = dyn Hooks;

            fn deref(&self) -> &Self::Target {
                match self {
                    $($(#[$if])* Self::$name(policy) => policy,)*
                }
            }
        }

        impl DerefMut for Policy {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self {
                    $($(#[$if])* Self::$name(policy) => policy,)*
                }
            }
        }
    };
}

/// The policy keeps so many replicas.
fn with_replicas(mut policy: Policy, count: u8) -> Result<Policy, Refusal> {
    if count > peer::Policy::REPLICAS {
        let most = peer::Policy::REPLICAS;
        let why = format!("{count} replicas: a segment has {most} at most");
        return Err(Refusal::Invalid(why));
    }
    if count > 0 {
        policy.keep_replicas(count)?;
    }
    Ok(policy)
}

policies! {
    Sequential(sequential::Sequential),
    Release(release::Release),
    Views(views::Views),
    Private(private::Private),
    Files(files::Files),
    #[cfg(any(test, feature = "example-policies"))]
    Broadcast(broadcast::Broadcast),
}
