//! One end of a pipe: one order a line of input, one answer a line of output.
//!
//! | order | answer |
//! |---|---|
//! | `send NUMBER LENGTH` | `sent`: a message that shows its number everywhere in it |
//! | `receive` | number and length of the message, after a look at each byte |
//! | `echo COUNT` | `echoed`, when so many messages were sent back |
//! | `close` | `closed` |
//! | `end` | none: the process ends and closes nothing |
//!
//! A failed order is answered by `error: ` and the reason.

use crate::{family, say};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use pagemesh::{Mesh, Pipe, PipeOptions};
use pagemesh_tests::message;
use std::time::Duration;

/// For whatever comes at all.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Args)]
pub(crate) struct PipeEnd {
    /// Its name
    name: String,
    /// Bytes of the longest message
    #[arg(long, default_value_t = 4032)]
    size: usize,
}

impl PipeEnd {
    pub(crate) fn play(self) -> Result<()> {
        let mesh = Mesh::connect()?;
        let options = PipeOptions {
            size: self.size,
            ..PipeOptions::default()
        };
        let mut pipe = Some(Pipe::create(&mesh, &self.name, options)?);
        say("ready")?;
        for line in std::io::stdin().lines() {
            let line = line?;
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["end"] => family::exit(0),
                ["close"] => {
                    pipe.take();
                    say("closed")?;
                }
                _ => {
                    let pipe = pipe.as_ref().context("the pipe is closed")?;
                    match obey(pipe, &words) {
                        Ok(answer) => say(&answer)?,
                        Err(error) => say(&format!("error: {error:#}"))?,
                    }
                }
            }
        }
        Ok(())
    }
}

fn obey(pipe: &Pipe, words: &[&str]) -> Result<String> {
    match words {
        ["send", number, length] => {
            let bytes = message(number.parse()?, length.parse()?);
            pipe.send(&bytes, Some(LIMIT))?;
            Ok("sent".into())
        }
        ["receive"] => {
            let bytes = pipe.receive(Some(LIMIT))?;
            let number = u64::from_le_bytes(*bytes.first_chunk().context("too short")?);
            if bytes != message(number, bytes.len()) {
                bail!("the message is torn");
            }
            Ok(format!("{number} {}", bytes.len()))
        }
        ["echo", count] => {
            for _ in 0..count.parse::<u32>()? {
                let bytes = pipe.receive(Some(LIMIT))?;
                pipe.send(&bytes, Some(LIMIT))?;
            }
            Ok("echoed".into())
        }
        _ => bail!("no such order"),
    }
}
