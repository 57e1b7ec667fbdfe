//! What a coordinator decides, as records in etcd. They have the form of the file
//! ([`crate::ledger`]), in pieces.

use super::EtcdProgram;
use crate::ledger::{Refused, file};
use pagemesh_core::{Kept, KeptEntry};
use pagemesh_wire::Term;
use pagemesh_wire::etcd::{Answer, Request};
use std::io;
use std::sync::Arc;

/// A record with more bytes than this takes the place of all.
const LARGE: usize = 1 << 19;

/// Everything is written anew when there are so many bytes, and several times as many as after it
/// was last written anew.
const LONG: usize = 1 << 20;
const TIMES: usize = 4;

/// See the module.
pub(crate) struct EtcdRecords {
    program: Arc<EtcdProgram>,
    kept: Kept,
    term: Term,
    generation: u32,
    record: u32,
    bytes: usize,
    least: usize,
}

impl EtcdRecords {
    /// Nothing is written yet; `generation` was drawn at random, so that no record of another
    /// daemon has the same name.
    pub(crate) fn new(program: Arc<EtcdProgram>, generation: u32) -> Self {
        Self {
            program,
            kept: Kept::default(),
            term: Term::NONE,
            generation,
            record: 0,
            bytes: 0,
            least: 0,
        }
    }

    /// Puts entries there.
    ///
    /// # Errors
    /// If etcd does not take them; all has to be [written anew](Self::rewrite) then, unless another
    /// node has the claim.
    pub(crate) fn append(&mut self, entries: &[KeptEntry]) -> Result<(), Refused> {
        let begins = entries.iter().find_map(KeptEntry::term);
        self.kept.apply_batch(entries.to_vec());
        if let Some(term) = begins {
            self.term = term;
            return self.rewrite();
        }
        let bytes = file::record(entries);
        if bytes.len() > LARGE || self.bytes + bytes.len() > LONG.max(self.least * TIMES) {
            return self.rewrite();
        }
        self.put(bytes)
    }

    /// Puts everything there, in the place of what was there before.
    ///
    /// # Errors
    /// If etcd does not take it.
    pub(crate) fn rewrite(&mut self) -> Result<(), Refused> {
        self.generation = self.generation.wrapping_add(1);
        (self.record, self.bytes) = (0, 0);
        self.put(file::whole(&self.kept))?;
        self.least = self.bytes;
        Ok(())
    }

    fn put(&mut self, bytes: Vec<u8>) -> Result<(), Refused> {
        let length = bytes.len();
        let answer = self.program.ask(&Request::Keep {
            term: self.term,
            generation: self.generation,
            record: self.record,
            bytes,
        })?;
        match answer {
            Answer::Done => {
                self.record += 1;
                self.bytes += length;
                Ok(())
            }
            Answer::Fenced(by) => Err(Refused::Fenced(by)),
            other => Err(io::Error::other(format!("an odd answer: {other:?}")).into()),
        }
    }
}
