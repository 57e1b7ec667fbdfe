//! Twins and diffs, as the daemon uses them.

mod deferred;
mod narrow;
mod reference;
mod store;
