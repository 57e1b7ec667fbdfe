//! The command, as people and scripts use it.

mod bad_input;
mod commands;
mod common;
mod culprits;
mod output;
