//! The two handshakes, in terms of the Noise framework.

use crate::dice::Dice;
use crate::identity::Identity;
use pagemesh_wire::PublicKey;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use std::sync::Arc;

/// With a newcomer: both hosts learn each other's key; the pre-shared key admits.
const NEWCOMER: &str = "Noise_XXpsk3_25519_ChaChaPoly_BLAKE2s";

/// Between members: both hosts know each other's key.
const MEMBERS: &str = "Noise_KK_25519_ChaChaPoly_BLAKE2s";

/// Position where the pre-shared key is mixed in.
const PSK: u8 = 3;

/// A handshake under way.
pub(crate) type Handshake = HandshakeState;

/// The side of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Sends the first message.
    Initiator,
    /// Answers it.
    Responder,
}

/// A newcomer's handshake.
pub(crate) fn newcomer(
    me: &Identity,
    psk: &[u8; 32],
    prologue: &[u8],
    dice: &Arc<dyn Dice>,
    side: Side,
) -> Result<Handshake, Error> {
    let builder = builder(NEWCOMER, dice)?
        .local_private_key(me.private())?
        .prologue(prologue)?
        .psk(PSK, psk)?;
    build(builder, side)
}

/// A handshake with a member.
pub(crate) fn member(
    me: &Identity,
    other: &PublicKey,
    prologue: &[u8],
    dice: &Arc<dyn Dice>,
    side: Side,
) -> Result<Handshake, Error> {
    let builder = builder(MEMBERS, dice)?
        .local_private_key(me.private())?
        .prologue(prologue)?
        .remote_public_key(&other.0)?;
    build(builder, side)
}

fn builder(pattern: &str, dice: &Arc<dyn Dice>) -> Result<Builder<'static>, Error> {
    let resolver = Resolver(Arc::clone(dice));
    Ok(Builder::with_resolver(pattern.parse()?, Box::new(resolver)))
}

fn build(builder: Builder<'_>, side: Side) -> Result<Handshake, Error> {
    match side {
        Side::Initiator => builder.build_initiator(),
        Side::Responder => builder.build_responder(),
    }
}

/// The library's algorithms with the caller's source of randomness.
struct Resolver(Arc<dyn Dice>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Rolled(Arc::clone(&self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct Rolled(Arc<dyn Dice>);

impl Random for Rolled {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.0.fill(bytes);
        Ok(())
    }
}
