//! A node, between a cluster of others and a driver that does as it says.

mod ahead;
mod backups;
mod bounds;
mod capabilities;
mod common;
mod election;
mod holds;
mod keys;
mod numbers;
mod one_to_many;
mod output_commit;
mod patience;
mod rejoin;
mod releases;
mod resuming;
mod sequential;
mod standby;
mod trapping;
mod upgrade;
mod views;
mod views_census;
mod views_replicas;
