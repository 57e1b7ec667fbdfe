//! Sleeping while a byte is unchanged (F7, `dsmwait`).

use std::time::{Duration, Instant};

use pagemesh_wire::local::Request;
use pagemesh_wire::peer::{Policy, Refusal};
use pagemesh_wire::{ByteOffset, PAGE_SIZE};

use crate::bell::after;
use crate::{Error, Mapping, Result, Segment};

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
        sleep(segment, watch.clone(), until, || {
            memory.byte(offset) == expected
        })?;
    }
}

/// Sleeps until the page may have changed, if the byte still has the expected value after the watch
/// was registered.
fn sleep(
    segment: &Segment,
    watch: Request,
    until: Option<Instant>,
    unchanged: impl FnOnce() -> bool,
) -> Result<()> {
    let connection = segment.mesh().connection();
    let mut call = connection.start(watch, &[], None)?;
    // Dropping the call withdraws the watch.
    if call.begin(until)?.is_none() && unchanged() {
        call.finish(until)?;
    }
    Ok(())
}
