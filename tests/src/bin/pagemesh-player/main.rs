//! A process of a test: told what to do by its arguments, it runs on a node.

fn main() {}
