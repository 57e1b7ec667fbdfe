//! Twins and diffs, as the daemon uses them.

mod deferred;
mod reference;
mod store;
