//! Permission to join for a limited time, without the cluster's key.

use crate::dice::Dice;
use crate::secret::{Secret, SecretId};
use crate::text::{self, BadText};
use core::fmt;

/// The terms under which a host may join. A newcomer sends it in the clear, and it says what the
/// pre-shared key is derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The secret that the token was made from.
    pub secret: SecretId,
    /// A random number that makes every token different.
    pub number: [u8; 16],
    /// When it expires, in seconds since the epoch; zero for never.
    pub expires: u64,
}

/// Permission to join: a grant with its proof. The cluster's key cannot be computed from it, so its
/// bearer cannot admit other hosts.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub(crate) grant: Grant,
    pub(crate) proof: [u8; 32],
}

/// Length of an encoded grant in bytes.
pub(crate) const GRANT_SIZE: usize = 32;

const PREFIX: &str = "pagemesh-join-1-";

impl Grant {
    pub(crate) fn encode(&self) -> [u8; GRANT_SIZE] {
        let mut bytes = [0; GRANT_SIZE];
        bytes[..8].copy_from_slice(&self.secret.0);
        bytes[8..24].copy_from_slice(&self.number);
        bytes[24..].copy_from_slice(&self.expires.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; GRANT_SIZE]) -> Self {
        let (secret, rest) = bytes.split_first_chunk().expect("a grant is longer");
        let (number, rest) = rest.split_first_chunk().expect("a grant is longer");
        let expires = rest.try_into().expect("eight bytes are left");
        Self {
            secret: SecretId(*secret),
            number: *number,
            expires: u64::from_le_bytes(expires),
        }
    }

    /// True if it has expired.
    #[must_use]
    pub const fn has_expired(&self, unix: u64) -> bool {
        self.expires != 0 && self.expires <= unix
    }

    /// The proof of the grant: the pre-shared key derived from the secret.
    pub(crate) fn proof(&self, secret: &Secret) -> [u8; 32] {
        secret.derive("grant", &self.encode())
    }
}

impl Token {
    /// A token that is valid until `expires`, or for ever if that is zero.
    pub fn new(secret: &Secret, expires: u64, dice: &dyn Dice) -> Self {
        let mut number = [0; 16];
        dice.fill(&mut number);
        let grant = Grant {
            secret: secret.id(),
            number,
            expires,
        };
        let proof = grant.proof(secret);
        Self { grant, proof }
    }

    /// The token's terms.
    #[must_use]
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The token as text, for the command line or a file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let bytes = [&self.grant.encode()[..], &self.proof].concat();
        format!("{PREFIX}{}", text::encode(&bytes))
    }

    /// Parses the output of [`Token::to_text`].
    ///
    /// # Errors
    /// If the text is not a token, or was damaged.
    pub fn from_text(text: &str) -> Result<Self, BadText> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(BadText::Foreign)?;
        let bytes = text::decode(rest)?;
        let (grant, proof) = bytes.split_first_chunk().ok_or(BadText::Damaged)?;
        Ok(Self {
            grant: Grant::decode(grant),
            proof: proof.try_into().map_err(|_| BadText::Damaged)?,
        })
    }
}

/// Does not print the proof.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.grant).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::SystemDice;

    #[test]
    fn tokens_survive_being_copied() {
        let dice = SystemDice::default();
        let secret = Secret::new(&dice);
        let token = Token::new(&secret, 77, &dice);
        assert_eq!(Token::from_text(&token.to_text()), Ok(token.clone()));
        assert_eq!(token.grant.proof(&secret), token.proof);
        assert_ne!(Token::new(&secret, 77, &dice), token);
        assert!(token.grant.has_expired(77) && !token.grant.has_expired(76));
        assert!(!Token::new(&secret, 0, &dice).grant.has_expired(u64::MAX));
        assert_eq!(
            Token::from_text(&secret.to_text()),
            Err(BadText::Foreign),
            "a key is not a token"
        );
    }

    #[test]
    fn terms_cannot_be_bettered() {
        let dice = SystemDice::default();
        let secret = Secret::new(&dice);
        let token = Token::new(&secret, 77, &dice);
        let better = Grant {
            expires: 0,
            ..token.grant
        };
        assert_ne!(better.proof(&secret), token.proof);
    }
}
