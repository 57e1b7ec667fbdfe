//! What all who may join a cluster know.

use crate::dice::Dice;
use crate::text::{self, BadText};
use core::fmt;
use ring::digest::{SHA256, digest};
use ring::hmac;

/// A cluster's key. Whoever knows it may join.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// What may be said aloud of a secret: enough to tell it from another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretId(pub(crate) [u8; 8]);

/// The secrets a daemon accepts, newest first; it introduces itself by the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring(Vec<Secret>);

const PREFIX: &str = "pagemesh-key-1-";

impl Secret {
    /// A new one.
    pub fn new(dice: &dyn Dice) -> Self {
        let mut bytes = [0; 32];
        dice.fill(&mut bytes);
        Self(bytes)
    }

    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its public name.
    #[must_use]
    pub fn id(&self) -> SecretId {
        let hash = self.derive("name", b"");
        SecretId(*hash.first_chunk().expect("a hash is longer"))
    }

    /// A secret for one use, from which this one cannot be found.
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

    /// For a key file.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}", text::encode(&checked(&self.0)))
    }

    /// From a line of a key file.
    ///
    /// # Errors
    /// If it is none, or was damaged.
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

/// With four bytes that tell whether it was copied completely.
fn checked(secret: &[u8; 32]) -> Vec<u8> {
    let hash = digest(&SHA256, secret);
    [&secret[..], &hash.as_ref()[..4]].concat()
}

impl Ring {
    /// From the text of a key file: one key a line, the newest first; empty
    /// lines and lines that begin with `#` say nothing.
    ///
    /// # Errors
    /// If a line is no key, with its number; or if there is none.
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

    /// For a key file.
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

    /// With a newer secret; of the older, so many are still accepted.
    #[must_use]
    pub fn rotated(&self, newest: Secret, keep: usize) -> Self {
        let older = self.0.iter().take(keep).cloned();
        Self(core::iter::once(newest).chain(older).collect())
    }

    /// The one to introduce oneself by.
    #[must_use]
    pub fn newest(&self) -> Option<&Secret> {
        self.0.first()
    }

    /// The secret of this name.
    #[must_use]
    pub fn get(&self, id: SecretId) -> Option<&Secret> {
        self.0.iter().find(|secret| secret.id() == id)
    }

    /// All of them, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.0.iter()
    }
}

/// Secrets are never printed by mistake.
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
