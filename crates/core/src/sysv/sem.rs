//! Sets of semaphores. All operations of a call are done or none, in the order of arrival, and are
//! undone when their process ends if it asked for that.

use super::table::{self, Body, Keyed, READ, Table, WRITE, new_perm};
use super::{Answers, Asker, Count, Process};
use crate::caller::Caller;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::NodeId;
use pagemesh_wire::sysv::{
    Change, Errno, IPC_NOWAIT, Id, OPERATIONS, Outcome, Pick, SEM_UNDO, SEMAPHORES, SEMVMX, SemBuf,
    SemRead, SemStat,
};
use serde::{Deserialize, Serialize};

/// All sets whose home is this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Sems(Table<Set>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Set {
    values: Vec<i32>,
    /// For each semaphore, the process that changed it last.
    pids: Vec<i32>,
    otime: u64,
    ctime: u64,
    /// Waiting calls, first come first served.
    sleepers: Vec<Sleeper>,
    /// For each process, the numbers to add to semaphores when it ends.
    undo: SortedMap<Process, SortedMap<u16, i32>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Sleeper {
    caller: Caller,
    process: Process,
    pid: i32,
    ops: Vec<SemBuf>,
}

/// The result that operations would have now.
enum Trial {
    /// They succeed, with these values and this undo state of the process.
    Done(Vec<i32>, SortedMap<u16, i32>),
    /// The operation with this index has to wait.
    Blocks(usize),
    /// They fail with this error.
    Fails(Errno),
}

impl Sems {
    /// The set of this key, if it is here.
    pub(super) fn find(
        &self,
        asker: &Asker<'_>,
        (key, count, flags): (i32, i32, i32),
    ) -> Result<Option<Id>, Errno> {
        let count = wanted(asker, count)?;
        let enough = |set: &Set| count as usize <= set.values.len();
        self.0.find(key, flags, asker.who, enough)
    }

    /// Makes a set that is not published.
    pub(super) fn offer(
        &mut self,
        asker: &Asker<'_>,
        (key, count, flags): (i32, i32, i32),
    ) -> Result<Id, Errno> {
        let limits = asker.limits;
        let count = wanted(asker, count)?;
        if count == 0 {
            return Err(Errno::EINVAL);
        }
        if self.0.parts() + u64::from(count) > u64::from(limits.semmns) {
            return Err(Errno::ENOSPC);
        }
        let set = Set {
            values: vec![0; count as usize],
            pids: vec![0; count as usize],
            otime: 0,
            ctime: asker.now,
            sleepers: Vec::new(),
            undo: SortedMap::new(),
        };
        let perm = new_perm(key, flags, asker.who);
        self.0.offer(asker.me, perm, limits.semmni, |_| set)
    }

    pub(super) fn table(&self) -> &dyn Keyed {
        &self.0
    }

    pub(super) fn table_mut(&mut self) -> &mut dyn Keyed {
        &mut self.0
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|set| set.body.values.len() as u64).sum()
    }

    pub(super) fn operate(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        ops: &[SemBuf],
        answers: &mut Answers,
    ) {
        match self.begin(asker, id, ops) {
            Err(errno) => answers.fail(asker.caller, errno),
            Ok(false) => answers.wait(asker.caller),
            Ok(true) => {
                answers.give(asker.caller, Outcome::Number(0));
                self.wake(id, asker.now, answers);
            }
        }
    }

    /// Starts a call. Returns true if its operations were done at once.
    fn begin(&mut self, asker: &Asker<'_>, id: Id, ops: &[SemBuf]) -> Result<bool, Errno> {
        if ops.is_empty() || id.0 < 0 {
            return Err(Errno::EINVAL);
        }
        if ops.len() > asker.limits.semopm.min(OPERATIONS) as usize {
            return Err(Errno::E2BIG);
        }
        let object = self.0.get_mut(id)?;
        let set = &mut object.body;
        if ops.iter().any(|op| op.flags & SEM_UNDO != 0) {
            // From now on the end of the process counts as an operation, as in the kernel.
            set.undo.entry(asker.process).or_default();
        }
        let size = set.values.len();
        if ops.iter().any(|op| usize::from(op.number) >= size) {
            return Err(Errno::EFBIG);
        }
        let alters = ops.iter().any(|op| op.op != 0);
        let wanted = if alters { WRITE } else { READ };
        table::check(&object.perm, asker.who, wanted)?;
        let (process, pid) = (asker.process, asker.pid);
        match set.attempt(ops, process) {
            Trial::Fails(errno) => Err(errno),
            Trial::Done(values, undo) => {
                set.commit((process, pid), ops, (values, undo), asker.now);
                Ok(true)
            }
            Trial::Blocks(_) => {
                set.sleepers.push(Sleeper {
                    caller: asker.caller,
                    process,
                    pid,
                    ops: ops.to_vec(),
                });
                Ok(false)
            }
        }
    }

    /// A set has changed: calls that can go on do, in the order of arrival.
    fn wake(&mut self, id: Id, now: u64, answers: &mut Answers) {
        if let Ok(object) = self.0.get_mut(id) {
            object.body.wake(now, answers);
        }
    }

    pub(super) fn read_one(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        number: i32,
        what: SemRead,
    ) -> Result<i32, Errno> {
        if what == SemRead::Count {
            let set = &self.0.permitted(id, asker.who, WRITE)?.body;
            return Ok(set.values.len() as i32);
        }
        let set = &self.0.permitted(id, asker.who, READ)?.body;
        let at = set.place(number)?;
        Ok(match what {
            SemRead::Count => unreachable!("answered above"),
            SemRead::Value => set.values[at],
            SemRead::Pid => set.pids[at],
            SemRead::Rising => set.waiting(at, false),
            SemRead::Zero => set.waiting(at, true),
        })
    }

    pub(super) fn read_all(&mut self, asker: &Asker<'_>, id: Id) -> Result<Vec<u8>, Errno> {
        let set = &self.0.permitted(id, asker.who, READ)?.body;
        let bytes = set
            .values
            .iter()
            .flat_map(|value| (*value as u16).to_le_bytes());
        Ok(bytes.collect())
    }

    pub(super) fn set_one(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        (number, value): (i32, i32),
        answers: &mut Answers,
    ) -> Result<(), Errno> {
        if !(0..=SEMVMX).contains(&value) {
            return Err(Errno::ERANGE);
        }
        // The kernel checks the number before the mode.
        let at = self.0.get(id)?.body.place(number)?;
        let set = &mut self.0.permitted(id, asker.who, WRITE)?.body;
        set.values[at] = value;
        set.pids[at] = asker.pid;
        for undo in set.undo.values_mut() {
            undo.remove(&(at as u16));
        }
        set.ctime = asker.now;
        self.wake(id, asker.now, answers);
        Ok(())
    }

    pub(super) fn set_all(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        values: &[u8],
        answers: &mut Answers,
    ) -> Result<(), Errno> {
        let set = &mut self.0.permitted(id, asker.who, WRITE)?.body;
        let values: Vec<i32> = values
            .chunks_exact(2)
            .map(|two| i32::from(u16::from_le_bytes([two[0], two[1]])))
            .collect();
        if values.len() != set.values.len() {
            return Err(Errno::EINVAL);
        }
        if values.iter().any(|value| *value > SEMVMX) {
            return Err(Errno::ERANGE);
        }
        set.values = values;
        set.pids.fill(asker.pid);
        for undo in set.undo.values_mut() {
            undo.clear();
        }
        set.ctime = asker.now;
        self.wake(id, asker.now, answers);
        Ok(())
    }

    pub(super) fn stat(&self, asker: &Asker<'_>, pick: Pick) -> Result<SemStat, Errno> {
        let object = self.0.pick(pick, asker.who)?;
        Ok(SemStat {
            id: object.id,
            perm: object.perm,
            otime: object.body.otime,
            ctime: object.body.ctime,
            nsems: object.body.values.len() as u32,
            site: asker.me,
        })
    }

    pub(super) fn change(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        change: &Change,
    ) -> Result<(), Errno> {
        self.0.change(id, asker, change).map(drop)
    }

    pub(super) fn remove(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        answers: &mut Answers,
    ) -> Result<(), Errno> {
        for sleeper in self.0.take(id, asker.who)?.sleepers {
            answers.fail(sleeper.caller, Errno::EIDRM);
        }
        Ok(())
    }

    /// The highest slot in use, and the number of sets and semaphores.
    pub(super) fn count(&self) -> Count {
        (self.0.highest(), self.0.len(), self.total(), 0)
    }

    /// A caller has withdrawn its wait.
    pub(super) fn cancel(&mut self, caller: Caller) {
        for object in self.0.iter_mut() {
            object.body.sleepers.retain(|other| other.caller != caller);
        }
    }

    /// A process has ended: undoes its operations and drops its calls.
    pub(super) fn exit(&mut self, process: Process, pid: i32, now: u64, answers: &mut Answers) {
        for object in self.0.iter_mut() {
            object.body.exit(process, pid, now, answers);
        }
    }

    /// A node is gone, with all its processes.
    pub(super) fn member_gone(&mut self, node: NodeId, now: u64, answers: &mut Answers) {
        for object in self.0.iter_mut() {
            let set = &mut object.body;
            set.sleepers.retain(|sleeper| sleeper.caller.node != node);
            let processes: Vec<_> = set
                .undo
                .keys()
                .filter(|p| p.node == node)
                .copied()
                .collect();
            for process in processes {
                set.exit(process, 0, now, answers);
            }
        }
    }
}

/// Checks the wanted number of semaphores against the limits.
pub(super) fn wanted(asker: &Asker<'_>, count: i32) -> Result<u32, Errno> {
    let count = u32::try_from(count).map_err(|_| Errno::EINVAL)?;
    let most = asker.limits.semmsl.min(SEMAPHORES);
    (count <= most).then_some(count).ok_or(Errno::EINVAL)
}

impl Body for Set {
    fn ctime(&mut self) -> &mut u64 {
        &mut self.ctime
    }

    fn parts(&self) -> u64 {
        self.values.len() as u64
    }
}

impl Set {
    fn place(&self, number: i32) -> Result<usize, Errno> {
        let at = usize::try_from(number).ok();
        at.filter(|at| *at < self.values.len()).ok_or(Errno::EINVAL)
    }

    /// The result that these operations, one after another, would have now.
    fn attempt(&self, ops: &[SemBuf], process: Process) -> Trial {
        let mut values = self.values.clone();
        let mut undo = self.undo.get(&process).cloned().unwrap_or_default();
        for (at, op) in ops.iter().enumerate() {
            let value = &mut values[usize::from(op.number)];
            let next = *value + i32::from(op.op);
            if next < 0 || (op.op == 0 && *value != 0) {
                return if i32::from(op.flags) & IPC_NOWAIT != 0 {
                    Trial::Fails(Errno::EAGAIN)
                } else {
                    Trial::Blocks(at)
                };
            }
            if next > SEMVMX {
                return Trial::Fails(Errno::ERANGE);
            }
            if op.flags & SEM_UNDO != 0 {
                let adjust = undo.entry(op.number).or_default();
                *adjust -= i32::from(op.op);
                if !(-SEMVMX - 1..=SEMVMX).contains(adjust) {
                    return Trial::Fails(Errno::ERANGE);
                }
            }
            *value = next;
        }
        Trial::Done(values, undo)
    }

    fn commit(
        &mut self,
        (process, pid): (Process, i32),
        ops: &[SemBuf],
        (values, mut undo): (Vec<i32>, SortedMap<u16, i32>),
        now: u64,
    ) {
        self.values = values;
        for op in ops {
            self.pids[usize::from(op.number)] = pid;
        }
        undo.retain(|_, adjust| *adjust != 0);
        if let Some(known) = self.undo.get_mut(&process) {
            *known = undo;
        }
        self.otime = now;
    }

    fn wake(&mut self, now: u64, answers: &mut Answers) {
        let mut at = 0;
        while at < self.sleepers.len() {
            let sleeper = &self.sleepers[at];
            match self.attempt(&sleeper.ops, sleeper.process) {
                Trial::Blocks(_) => at += 1,
                Trial::Fails(errno) => {
                    let sleeper = self.sleepers.remove(at);
                    answers.fail(sleeper.caller, errno);
                }
                Trial::Done(values, undo) => {
                    let sleeper = self.sleepers.remove(at);
                    let who = (sleeper.process, sleeper.pid);
                    self.commit(who, &sleeper.ops, (values, undo), now);
                    answers.give(sleeper.caller, Outcome::Number(0));
                    // Calls that came before may be able to go on now.
                    if sleeper.ops.iter().any(|op| op.op != 0) {
                        at = 0;
                    }
                }
            }
        }
    }

    /// The number of calls that wait here for a rise, or for zero; a call counts at the first
    /// operation that blocks it.
    fn waiting(&self, at: usize, zero: bool) -> i32 {
        let here = |sleeper: &&Sleeper| match self.attempt(&sleeper.ops, sleeper.process) {
            Trial::Blocks(which) => {
                let op = sleeper.ops[which];
                usize::from(op.number) == at && (op.op == 0) == zero
            }
            _ => false,
        };
        self.sleepers.iter().filter(here).count() as i32
    }

    fn exit(&mut self, process: Process, pid: i32, now: u64, answers: &mut Answers) {
        self.sleepers.retain(|sleeper| sleeper.process != process);
        let Some(undo) = self.undo.remove(&process) else {
            return;
        };
        for (number, adjust) in undo {
            let at = usize::from(number);
            self.values[at] = (self.values[at] + adjust).clamp(0, SEMVMX);
            self.pids[at] = pid;
        }
        self.otime = now;
        self.wake(now, answers);
    }
}
