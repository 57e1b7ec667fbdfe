//! Sleeping while a byte is unchanged (F7, `dsmwait`).

use std::time::{Duration, Instant};

use pagemesh_wire::local::Request;
use pagemesh_wire::peer::{Policy, Refusal};
use pagemesh_wire::{ByteOffset, PAGE_SIZE};

use crate::bell::after;
use crate::connection::Connection;
use crate::{Error, Mapping, Result, Segment};

/// So long a thread sleeps where nothing tells it that the daemon is gone.
const SOON: Duration = Duration::from_secs(1);

/// See [`Segment::wait_change`].
pub fn wait_change(
    segment: &Segment,
    offset: u64,
    expected: u8,
    timeout: Option<Duration>,
) -> Result<u8> {
    // Refuse whatever the byte is: this node's copy of such a segment may be old, and it would
    // depend on timing whether the program finds its change.
    let policy = segment.info().spec.policy;
    if policy.sequential().is_none() && !matches!(policy, Policy::Views { .. }) {
        return Err(Refusal::Invalid(Policy::NO_WATCH.into()).into());
    }
    let until = timeout.and_then(after);
    let page = ByteOffset(offset).page();
    let page = page.filter(|_| segment.contains(&(offset..offset + 1)));
    let page = page.ok_or(Error::Invalid("the byte does not lie in the segment"))?;
    let memory = Mapping::find_or_make(segment, page.offset().0, PAGE_SIZE as u64)?;
    let watch = Request::Watch {
        segment: segment.id(),
        page,
    };
    loop {
        let seen = memory.byte(offset);
        if seen != expected {
            return Ok(seen);
        }
        let mut changed = || Ok(memory.byte(offset) != expected);
        sleep(segment, watch.clone(), until, &mut changed)?;
    }
}

/// Sleeps until the pages may have changed that a request watches, if nothing has `changed` after
/// the watch began.
pub fn sleep(
    segment: &Segment,
    watch: Request,
    until: Option<Instant>,
    changed: &mut dyn FnMut() -> Result<bool>,
) -> Result<()> {
    let connection = segment.mesh().connection();
    if segment.has_views() && doze(connection, until, changed)? {
        return Ok(());
    }
    // Dropping the call withdraws the watch. A late answer changes nothing, so the deadline holds
    // even if the daemon is kept from its processor then.
    let mut call = connection.start(watch, &[], None)?.surely(true);
    if call.begin(until)?.is_none() && !changed()? {
        call.finish(until)?;
    }
    Ok(())
}

/// Sleeps until states of policy `views` may have changed, without a request: the daemon counts
/// changes where the process sees it. False if it does not, or if none came for a while: then the
/// thread watches by a request, which also fails if the daemon is gone.
pub fn doze(
    connection: &Connection,
    until: Option<Instant>,
    changed: &mut dyn FnMut() -> Result<bool>,
) -> Result<bool> {
    let Some(watch) = connection.watch() else {
        return Ok(false);
    };
    if changed()? {
        return Ok(true);
    }
    let soon = Instant::now() + SOON;
    let end = until.map_or(soon, |until| until.min(soon));
    match watch.sleep(end, until.is_none()) {
        Ok(()) => Ok(true),
        Err(Error::TimedOut) if until != Some(end) || connection.is_closed() => Ok(false),
        Err(stop) => Err(stop),
    }
}
