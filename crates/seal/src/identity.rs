//! Who a daemon is.

use crate::dice::Dice;
use core::fmt;
use pagemesh_wire::PublicKey;
use snow::resolvers::{CryptoResolver as _, DefaultResolver};

/// A daemon's own key pair, drawn when it starts.
#[derive(Clone)]
pub struct Identity {
    private: [u8; 32],
    public: PublicKey,
}

impl Identity {
    /// A new one.
    pub fn new(dice: &dyn Dice) -> Self {
        let mut private = [0; 32];
        dice.fill(&mut private);
        Self::from_private(private)
    }

    /// The one of a daemon that this one replaces.
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

    /// What others know it by.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// For whoever keeps it while a daemon is replaced; for nobody else.
    #[must_use]
    pub const fn private(&self) -> &[u8; 32] {
        &self.private
    }
}

/// The private half is never printed by mistake.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}
