//! Locks, barriers, condition variables. They do not depend on policies.

mod barriers;
mod conditions;
mod locks;

pub(crate) use barriers::Barriers;
pub(crate) use conditions::Conditions;
pub(crate) use locks::Locks;
