//! Sealed pages: contents that other nodes keep for this one, and can neither read, change nor
//! replace by older ones (GB3).

use crate::dice::Dice;
use crate::secret::Secret;
use core::fmt;
use pagemesh_wire::SegmentId;
use pagemesh_wire::peer::{LentPage, PageSeal};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::collections::BTreeMap;

/// Seals and opens the pages that this node lends.
///
/// Each segment has a key of its own, and page and version are the nonce: the owner never makes two
/// contents of one version. So a seal fits exactly one version of one page of one segment.
pub struct PageSealer {
    secret: Secret,
    keys: BTreeMap<SegmentId, LessSafeKey>,
}

/// Bytes of the secret from which all keys are derived.
pub const PAGE_SECRET: usize = 32;

impl PageSealer {
    /// A sealer with a new secret.
    pub fn new(dice: &dyn Dice) -> Self {
        Self::with(Secret::new(dice))
    }

    /// The sealer of the daemon before.
    #[must_use]
    pub fn from_secret(bytes: [u8; PAGE_SECRET]) -> Self {
        Self::with(Secret::from_bytes(bytes))
    }

    fn with(secret: Secret) -> Self {
        Self {
            secret,
            keys: BTreeMap::new(),
        }
    }

    /// The secret, for a daemon that goes on as this node.
    #[must_use]
    pub fn secret(&self) -> &[u8; PAGE_SECRET] {
        self.secret.bytes()
    }

    /// Encrypts contents in place.
    ///
    /// # Panics
    /// If `contents` is longer than a message of AES-GCM may be (64 GiB).
    pub fn seal(&mut self, lent: LentPage, contents: &mut [u8]) -> PageSeal {
        let key = self.key(lent.segment);
        let tag = key.seal_in_place_separate_tag(nonce(lent), aad(lent), contents);
        let tag = tag.expect("a page is short enough");
        PageSeal(tag.as_ref().try_into().expect("a tag has 16 bytes"))
    }

    /// Decrypts contents in place. False if they are not what [`PageSealer::seal`] made of this
    /// version of this page; then `contents` is garbage.
    pub fn open(&mut self, lent: LentPage, seal: PageSeal, contents: &mut [u8]) -> bool {
        let key = self.key(lent.segment);
        let tag = ring::aead::Tag::from(seal.0);
        key.open_in_place_separate_tag(nonce(lent), aad(lent), tag, contents, 0..)
            .is_ok()
    }

    /// The segment is not used any more.
    pub fn forget(&mut self, segment: SegmentId) {
        self.keys.remove(&segment);
    }

    fn key(&mut self, segment: SegmentId) -> &LessSafeKey {
        self.keys.entry(segment).or_insert_with(|| {
            let bytes = self.secret.derive("lent pages", &segment.0.to_le_bytes());
            let key = UnboundKey::new(&AES_256_GCM, &bytes);
            LessSafeKey::new(key.expect("the key has the length of a key"))
        })
    }
}

fn nonce(lent: LentPage) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..4].copy_from_slice(&lent.page.0.to_le_bytes());
    bytes[4..].copy_from_slice(&lent.version.0.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn aad(lent: LentPage) -> Aad<[u8; 8]> {
    Aad::from(lent.segment.0.to_le_bytes())
}

/// Does not print the secret.
impl fmt::Debug for PageSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageSealer({} segments)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::SystemDice;
    use pagemesh_wire::{NodeId, PageIndex, Version};

    fn lent(segment: u64, page: u32, version: u64) -> LentPage {
        LentPage {
            segment: SegmentId::new(NodeId(1), segment),
            page: PageIndex(page),
            version: Version(version),
        }
    }

    #[test]
    fn only_the_owner_opens_and_only_the_version_that_was_sealed() {
        let dice = SystemDice::default();
        let mut owner = PageSealer::new(&dice);
        let clear: Vec<u8> = (0..4096_u32).map(|byte| byte as u8).collect();
        let mut sealed = clear.clone();
        let seal = owner.seal(lent(1, 2, 3), &mut sealed);
        assert_ne!(sealed, clear, "a donor cannot read it");
        let tries = |sealer: &mut PageSealer, lent, seal| {
            let mut bytes = sealed.clone();
            (sealer.open(lent, seal, &mut bytes)).then_some(bytes)
        };
        assert_eq!(
            tries(&mut owner, lent(1, 2, 3), seal).as_deref(),
            Some(&clear[..])
        );
        // Another version, page or segment; another seal; another node.
        for other in [lent(1, 2, 2), lent(1, 2, 4), lent(1, 3, 3), lent(2, 2, 3)] {
            assert_eq!(tries(&mut owner, other, seal), None);
        }
        let mut forged = seal;
        forged.0[5] ^= 1;
        assert_eq!(tries(&mut owner, lent(1, 2, 3), forged), None);
        assert_eq!(
            tries(&mut PageSealer::new(&dice), lent(1, 2, 3), seal),
            None
        );
        let mut successor = PageSealer::from_secret(*owner.secret());
        assert_eq!(
            tries(&mut successor, lent(1, 2, 3), seal).as_deref(),
            Some(&clear[..])
        );
        // A changed byte.
        sealed[17] ^= 1;
        assert!(!owner.open(lent(1, 2, 3), seal, &mut sealed));
    }
}
