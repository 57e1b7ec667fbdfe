//! The identity of a daemon.

use crate::dice::Dice;
use core::fmt;
use pagemesh_wire::PublicKey;
use snow::resolvers::{CryptoResolver as _, DefaultResolver};

/// A daemon's own key pair, generated when it starts.
#[derive(Clone)]
pub struct Identity {
    private: [u8; 32],
    public: PublicKey,
}

impl Identity {
    /// Generates a new key pair.
    pub fn new(dice: &dyn Dice) -> Self {
        let mut private = [0; 32];
        dice.fill(&mut private);
        Self::from_private(private)
    }

    /// Restores the key pair of the daemon that this one replaces.
    ///
    /// # Panics
    /// Never: the curve is built in.
    #[must_use]
    pub fn from_private(private: [u8; 32]) -> Self {
        let mut curve = DefaultResolver
            .resolve_dh(&snow::params::DHChoice::Curve25519)
            .expect("the curve is built in");
        curve.set(&private);
        let public = curve.pubkey().try_into().expect("keys have 32 bytes");
        Self {
            private,
            public: PublicKey(public),
        }
    }

    /// The public key, by which others know the daemon.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// The private key, only for the keeper that holds it while a daemon is replaced.
    #[must_use]
    pub const fn private(&self) -> &[u8; 32] {
        &self.private
    }
}

/// Does not print the private key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}
