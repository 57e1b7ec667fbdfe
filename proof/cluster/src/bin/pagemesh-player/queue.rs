//! A bounded queue in shared memory, under a lock and two condition variables.

use crate::say;
use anyhow::Result;
use clap::Args;
use pagemesh::{Access, Condition, Lock, Mapping, Mesh};

/// Puts `first`, `first + 1`, ... into the queue.
#[derive(Args)]
pub(crate) struct Produce {
    segment: String,
    /// The first number
    #[arg(long)]
    first: u64,
    /// How many numbers
    #[arg(long)]
    count: u64,
}

/// Takes numbers out of the queue and says them, until it gets the last one.
#[derive(Args)]
pub(crate) struct Consume {
    segment: String,
    /// The number that means the end; it is put back for the others
    #[arg(long)]
    last: u64,
}

impl Produce {
    pub(crate) fn play(self) -> Result<()> {
        let queue = Queue::open(&self.segment)?;
        for number in self.first..self.first + self.count {
            queue.put(number)?;
        }
        Ok(())
    }
}

impl Consume {
    pub(crate) fn play(self) -> Result<()> {
        let queue = Queue::open(&self.segment)?;
        loop {
            let number = queue.take()?;
            if number == self.last {
                return queue.put(number);
            }
            say(&number.to_string())?;
        }
    }
}

struct Queue {
    memory: Mapping,
    lock: Lock,
    not_full: Condition,
    not_empty: Condition,
}

/// Room for so many: few, so that both sides have to wait.
const ROOM: u64 = 4;

// Where things are. The ends of the queue and its room share no page.
const TAKEN: usize = 0;
const PUT: usize = 8;
const NUMBERS: usize = 4096;

impl Queue {
    fn open(name: &str) -> Result<Self> {
        let segment = Mesh::connect()?.open(name, Access::Writable)?;
        Ok(Self {
            memory: segment.map()?,
            lock: segment.lock(1),
            not_full: segment.condition(2),
            not_empty: segment.condition(3),
        })
    }

    fn put(&self, number: u64) -> Result<()> {
        let mut guard = self.lock.lock()?;
        while self.word(PUT)? - self.word(TAKEN)? == ROOM {
            self.not_full.wait(&mut guard)?;
        }
        let place = self.word(PUT)?;
        self.set(NUMBERS + (place % ROOM) as usize * 8, number)?;
        self.set(PUT, place + 1)?;
        self.not_empty.signal()?;
        Ok(())
    }

    fn take(&self) -> Result<u64> {
        let mut guard = self.lock.lock()?;
        while self.word(PUT)? == self.word(TAKEN)? {
            self.not_empty.wait(&mut guard)?;
        }
        let place = self.word(TAKEN)?;
        let number = self.word(NUMBERS + (place % ROOM) as usize * 8)?;
        self.set(TAKEN, place + 1)?;
        self.not_full.signal()?;
        Ok(number)
    }

    fn word(&self, at: usize) -> Result<u64> {
        Ok(self.memory.load_u64(at)?)
    }

    fn set(&self, at: usize, value: u64) -> Result<()> {
        Ok(self.memory.write(at, &value.to_ne_bytes())?)
    }
}
