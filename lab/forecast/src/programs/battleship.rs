//! Battleship: two players, one page, and nothing but memory to agree by.

use super::nanos;
use crate::cluster::Cluster;
use crate::costs::Costs;
use crate::engine::Stuck;
use crate::host::{Act, Place, Program};
use core::time::Duration;
use pagemesh_wire::peer::Window;

/// A game of `lab/apps/mirage/battleship.c`.
#[derive(Clone, Copy, Debug)]
pub struct Battleship {
    /// Turns of each player.
    pub turns: u64,
    /// Looking through one's own field once, and giving way.
    pub look: Duration,
    /// Δ.
    pub window: Window,
}

/// The result of a game.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    /// All of it.
    pub took: Duration,
    /// In a turn of one player: loads that stopped, stores that stopped with the page
    /// readable, and absent; pages and datagrams sent.
    pub read_faults: f64,
    /// See above.
    pub upgrades: f64,
    /// See above.
    pub write_faults: f64,
    /// See above.
    pub pages: f64,
    /// See above.
    pub datagrams: f64,
}

/// How many shots have hit a player's field, and how many of them were answered. The
/// program finds out by looking at cells, all in the same page.
fn shots(player: u32) -> Place {
    word(player)
}

fn answers(player: u32) -> Place {
    word(2 + player)
}

fn word(word: u32) -> Place {
    Place {
        segment: 0,
        page: 0,
        word,
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Begin,
    /// P1: is there a new shot?
    Scan,
    Scanned,
    /// P2 is done.
    Answered,
    /// P3 is done.
    Shot,
    /// P4: is there an answer?
    Looked,
    Over,
}

struct Player {
    me: u32,
    look: u64,
    turns: u64,
    /// Shots at the other player, and answers to it.
    shot: u64,
    answered: u64,
    stage: Stage,
}

impl Player {
    fn other(&self) -> u32 {
        1 - self.me
    }

    fn shoot(&mut self) -> Act {
        if self.shot == self.turns {
            self.stage = Stage::Over;
            return Act::Note;
        }
        self.shot += 1;
        self.stage = Stage::Shot;
        Act::Store(shots(self.other()), self.shot)
    }
}

impl Program for Player {
    fn next(&mut self, loaded: u64) -> Act {
        match self.stage {
            Stage::Begin => {
                self.stage = if self.me == 0 {
                    Stage::Answered
                } else {
                    Stage::Scan
                };
                Act::Note
            }
            Stage::Scan => {
                self.stage = Stage::Scanned;
                Act::Load(shots(self.me))
            }
            Stage::Scanned if loaded > self.answered => {
                self.answered += 1;
                self.stage = Stage::Answered;
                Act::Store(answers(self.me), self.answered)
            }
            Stage::Scanned => {
                self.stage = Stage::Scan;
                Act::Work(self.look)
            }
            Stage::Answered => self.shoot(),
            Stage::Shot => {
                self.stage = Stage::Looked;
                Act::Load(answers(self.other()))
            }
            Stage::Looked if loaded < self.shot => {
                self.stage = Stage::Shot;
                Act::Work(self.look)
            }
            // The player that began answers the last shot.
            Stage::Looked if self.shot == self.turns && self.me == 1 => {
                self.stage = Stage::Over;
                Act::Note
            }
            Stage::Looked => {
                self.stage = Stage::Scan;
                Act::Work(self.look / 2)
            }
            Stage::Over => Act::End,
        }
    }
}

/// A game on two nodes.
///
/// # Errors
/// If the costs allow no end.
pub fn battleship(costs: &Costs, game: &Battleship) -> Result<Played, Stuck> {
    let player = |me| {
        Box::new(Player {
            me,
            look: nanos(game.look).max(1),
            turns: game.turns,
            shot: 0,
            answered: 0,
            stage: Stage::Begin,
        }) as Box<dyn Program>
    };
    let mut cluster = Cluster::new(*costs, game.window, &[1], vec![player(0), player(1)])?;
    let took = cluster.run()?[1];
    let counts = cluster.counts;
    let a_turn = |count: u64| count as f64 / (2 * game.turns) as f64;
    Ok(Played {
        took,
        read_faults: a_turn(counts.read_faults),
        upgrades: a_turn(counts.upgrades),
        write_faults: a_turn(counts.write_faults),
        pages: a_turn(counts.pages),
        datagrams: a_turn(counts.datagrams),
    })
}
