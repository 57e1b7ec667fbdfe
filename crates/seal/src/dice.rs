//! The source of randomness.

use ring::rand::{SecureRandom as _, SystemRandom};

/// A source of unpredictable random bytes; in the simulator, of bytes that are the same for the
/// same seed.
pub trait Dice: Send + Sync {
    /// Fills the slice with random bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// The operating system's random bytes.
#[derive(Debug)]
pub struct SystemDice(SystemRandom);

impl Default for SystemDice {
    fn default() -> Self {
        Self(SystemRandom::new())
    }
}

impl Dice for SystemDice {
    /// # Panics
    /// If the operating system has no random bytes, because then nothing can be secret.
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes).expect("the kernel has random bytes");
    }
}
