//! Twins and diffs, as the daemon uses them.

mod reference;
mod store;
