//! Codecs, and when they pay.

mod judging;
mod packing;
