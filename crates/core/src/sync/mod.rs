//! Locks, barriers, condition variables. They do not depend on policies.

mod barriers;
mod conditions;
mod early;
mod locks;

pub(crate) use barriers::Barriers;
pub(crate) use conditions::Conditions;
pub(crate) use early::{Early, EarlyArrivals};
pub(crate) use locks::Locks;
