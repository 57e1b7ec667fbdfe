//! Tests of whole clusters: one real daemon a node, real memory, in network
//! namespaces where the kernel lets us and on 127.0.0.x where not.
//!
//! A test process is a process of every node it connects to, since sockets are
//! files. Where that is not enough (to be killed, to crash, to run at once with
//! others) tests start players: see `src/bin/pagemesh-player`.

mod support;

mod barriers;
mod board_states;
mod borrowing;
mod c_examples;
mod capabilities;
mod children;
mod compressing;
mod conditions;
mod coordinators;
mod counting;
mod daemon_deaths;
mod debuggers;
mod etcd;
mod etcd_guards;
mod exports;
mod file_caches;
mod freebsd;
mod histories;
mod kernels;
mod leaving;
mod litmus;
mod locks;
mod many_nodes;
mod mappings;
mod mether;
mod mirage;
mod mortality;
mod multicast;
mod numbers;
mod observing;
mod permissions;
mod pieces;
mod pipes;
mod policies;
mod pressure;
mod private_deaths;
mod private_memory;
mod process_deaths;
mod publishing;
mod races;
mod recording;
mod reductions;
mod rejoining;
mod release;
mod replacement;
mod replica_deaths;
mod replicas;
mod request_slots;
mod resuming;
mod sealing;
mod sealing_keys;
mod seen_memory;
mod seen_stores;
mod segments;
mod shared_refreshes;
mod sharing;
mod sharing_kinds;
mod signals;
mod single_sites;
mod slow_links;
mod snapshots;
mod stress;
mod swapping;
mod system_calls;
mod sysv;
mod sysv_callers;
mod sysv_edges;
mod sysv_keys;
mod sysv_memory;
mod sysv_postgres;
mod sysv_programs;
mod tampering;
mod tmk;
mod trapping;
mod troubles;
mod upgrades;
mod views;
mod views_litmus;
mod watching;
