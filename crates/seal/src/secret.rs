//! The cluster's key, which every host that may join knows.

use crate::dice::Dice;
use crate::text::{self, BadText};
use core::fmt;
use ring::digest::{SHA256, digest};
use ring::hmac;

/// A cluster's key. Every host that knows it may join.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// The public identifier of a secret, which tells it from others and reveals nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretId(pub(crate) [u8; 8]);

/// The secrets that a daemon accepts, newest first; it introduces itself with the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring(Vec<Secret>);

const PREFIX: &str = "pagemesh-key-1-";

impl Secret {
    /// Generates a new secret.
    pub fn new(dice: &dyn Dice) -> Self {
        let mut bytes = [0; 32];
        dice.fill(&mut bytes);
        Self(bytes)
    }

    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its public identifier.
    #[must_use]
    pub fn id(&self) -> SecretId {
        let hash = self.derive("name", b"");
        SecretId(*hash.first_chunk().expect("a hash is longer"))
    }

    /// Derives a secret for one purpose, from which this one cannot be computed.
    pub(crate) fn derive(&self, purpose: &str, context: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut signer = hmac::Context::with_key(&key);
        signer.update(b"pagemesh ");
        signer.update(purpose.as_bytes());
        signer.update(&[0]);
        signer.update(context);
        let tag = signer.sign();
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// The line for a key file.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}", text::encode(&checked(&self.0)))
    }

    /// Parses a line of a key file.
    ///
    /// # Errors
    /// If the line is not a key, or was damaged.
    pub fn from_text(line: &str) -> Result<Self, BadText> {
        let rest = line.trim().strip_prefix(PREFIX).ok_or(BadText::Foreign)?;
        let bytes = text::decode(rest)?;
        let (secret, check) = bytes.split_first_chunk::<32>().ok_or(BadText::Damaged)?;
        if check != &checked(secret)[32..] {
            return Err(BadText::Damaged);
        }
        Ok(Self(*secret))
    }
}

/// The secret with a checksum of four bytes, which shows whether it was copied completely.
fn checked(secret: &[u8; 32]) -> Vec<u8> {
    let hash = digest(&SHA256, secret);
    [&secret[..], &hash.as_ref()[..4]].concat()
}

impl Ring {
    /// Parses the text of a key file: one key per line, the newest first; empty lines and lines
    /// that begin with `#` are ignored.
    ///
    /// # Errors
    /// If a line is not a key, with its number; or if there is no key.
    pub fn from_text(text: &str) -> Result<Self, (usize, BadText)> {
        let lines = text.lines().enumerate();
        let keys = lines.filter(|(_, line)| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#')
        });
        let ring: Vec<_> = keys
            .map(|(at, line)| Secret::from_text(line).map_err(|why| (at + 1, why)))
            .collect::<Result<_, _>>()?;
        if ring.is_empty() {
            return Err((1, BadText::Empty));
        }
        Ok(Self(ring))
    }

    /// The text for a key file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from(
            "# A PageMesh cluster's keys, the newest first. Whoever knows one may join.\n",
        );
        for secret in &self.0 {
            text.push_str(&secret.to_text());
            text.push('\n');
        }
        text
    }

    /// A ring with a newer secret in front; of the older ones, `keep` are still accepted.
    #[must_use]
    pub fn rotated(&self, newest: Secret, keep: usize) -> Self {
        let older = self.0.iter().take(keep).cloned();
        Self(core::iter::once(newest).chain(older).collect())
    }

    /// The secret with which this host introduces itself.
    #[must_use]
    pub fn newest(&self) -> Option<&Secret> {
        self.0.first()
    }

    /// The secret with this identifier.
    #[must_use]
    pub fn get(&self, id: SecretId) -> Option<&Secret> {
        self.0.iter().find(|secret| secret.id() == id)
    }

    /// All of them, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.0.iter()
    }
}

/// Does not print the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.id())
    }
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::SystemDice;

    #[test]
    fn a_key_file_is_read_as_it_was_written() {
        let dice = SystemDice::default();
        let (old, new) = (Secret::new(&dice), Secret::new(&dice));
        let ring = Ring(vec![old.clone()]).rotated(new.clone(), 1);
        assert_eq!(Ring::from_text(&ring.to_text()), Ok(ring.clone()));
        assert_eq!(ring.newest(), Some(&new));
        assert_eq!(ring.get(old.id()), Some(&old));
        assert_eq!(ring.rotated(old, 0).iter().count(), 1);
    }

    #[test]
    fn damage_is_found_and_named() {
        let secret = Secret::new(&SystemDice::default());
        let text = secret.to_text();
        assert_eq!(Secret::from_text(&format!(" {text}\n")), Ok(secret));
        let shorter = &text[..text.len() - 2];
        assert_eq!(Secret::from_text(shorter), Err(BadText::Damaged));
        assert_eq!(Secret::from_text("hello"), Err(BadText::Foreign));
        let file = format!("# keys\n\n{text}\nhello\n");
        assert_eq!(Ring::from_text(&file), Err((4, BadText::Foreign)));
        assert_eq!(Ring::from_text("# none\n"), Err((1, BadText::Empty)));
    }

    #[test]
    fn is_never_printed() {
        let secret = Secret::new(&SystemDice::default());
        let text = text::encode(secret.bytes());
        assert!(!format!("{secret:?} {:?}", Ring(vec![secret.clone()])).contains(&text[..8]));
    }
}
