//! What the tests of real clusters and the processes they start have in common.

#![forbid(unsafe_code)]

pub mod dice;
pub mod litmus;
pub mod record;
pub mod stress;
