//! Where secrets come from.

use ring::rand::{SecureRandom as _, SystemRandom};

/// A source of random bytes nobody can guess; in the simulator, of bytes that
/// come again with the same seed.
pub trait Dice: Send + Sync {
    /// Fills the bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// The operating system's.
#[derive(Debug)]
pub struct SystemDice(SystemRandom);

impl Default for SystemDice {
    fn default() -> Self {
        Self(SystemRandom::new())
    }
}

impl Dice for SystemDice {
    /// # Panics
    /// If the operating system has no random bytes; then nothing can be secret.
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes).expect("the kernel has random bytes");
    }
}
