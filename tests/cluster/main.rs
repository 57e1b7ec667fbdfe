//! Tests of whole clusters: real daemons, real memory.
