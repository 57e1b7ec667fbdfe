//! Requests of processes about pages, in the core's terms.

use crate::sessions::Sessions;
use pagemesh_core::Request as Ask;
use pagemesh_wire::local::Request;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, PageCount, PageIndex, SegmentId};

/// Pages that a request names.
type Range = (SegmentId, PageIndex, PageCount);

/// A request about pages in the core's terms; refused if the process may not make it.
pub(super) fn translate(
    sessions: &Sessions,
    client: ClientId,
    request: &Request,
) -> Result<Ask, Refusal> {
    if let Request::WillNeed { segment, ranges } = request {
        return translate_ranges(sessions, client, *segment, ranges);
    }
    let (ask, (segment, first, count), write) = of_pages(request);
    sessions.check_pages(client, segment, first, count, write)?;
    Ok(ask)
}

/// The same for an announcement of many ranges.
fn translate_ranges(
    sessions: &Sessions,
    client: ClientId,
    segment: SegmentId,
    ranges: &[(PageIndex, PageCount)],
) -> Result<Ask, Refusal> {
    if ranges.is_empty() || ranges.len() > Request::RANGES {
        let why = format!(
            "{} ranges: 1 to {} may be named",
            ranges.len(),
            Request::RANGES
        );
        return Err(Refusal::Invalid(why));
    }
    for (first, count) in ranges {
        sessions.check_pages(client, segment, *first, *count, false)?;
    }
    let ranges = ranges.to_vec();
    Ok(Ask::WillNeed { segment, ranges })
}

/// The request, its pages, and whether only a process that may write may make it.
fn of_pages(request: &Request) -> (Ask, Range, bool) {
    match *request {
        Request::Watch { segment, page } => {
            let ask = Ask::Watch { segment, page };
            (ask, (segment, page, PageCount(1)), false)
        }
        Request::Pin {
            segment,
            first,
            count,
        } => {
            let ask = Ask::Pin {
                segment,
                first,
                count,
            };
            (ask, (segment, first, count), true)
        }
        Request::PinShort {
            segment,
            first,
            count,
        } => {
            let ask = Ask::PinShort {
                segment,
                first,
                count,
            };
            (ask, (segment, first, count), true)
        }
        Request::Unpin {
            segment,
            first,
            count,
        } => {
            let ask = Ask::Unpin {
                segment,
                first,
                count,
            };
            (ask, (segment, first, count), true)
        }
        Request::Advise {
            segment,
            first,
            count,
            advice,
        } => {
            let ask = Ask::Advise {
                segment,
                first,
                count,
                advice,
            };
            (ask, (segment, first, count), false)
        }
        ref views => of_views(views),
    }
}

/// The same for the requests that policy `views` answers, and for holds.
fn of_views(request: &Request) -> (Ask, Range, bool) {
    match *request {
        Request::Purge {
            segment,
            first,
            count,
            short,
        } => {
            let ask = Ask::Purge {
                segment,
                first,
                count,
                short,
            };
            (ask, (segment, first, count), false)
        }
        Request::WatchRange {
            segment,
            first,
            count,
        } => {
            let ask = Ask::WatchRange {
                segment,
                first,
                count,
            };
            (ask, (segment, first, count), false)
        }
        Request::Publish {
            segment,
            first,
            count,
            short,
            waits,
        } => {
            let ask = Ask::Publish {
                segment,
                first,
                count,
                short,
                waits,
            };
            (ask, (segment, first, count), true)
        }
        Request::Hold { segment } => {
            let ask = Ask::Hold { segment };
            (ask, (segment, PageIndex(0), PageCount(1)), true)
        }
        Request::EndHold { segment } => {
            let ask = Ask::EndHold { segment };
            (ask, (segment, PageIndex(0), PageCount(1)), true)
        }
        ref other => unreachable!("no request about pages: {other:?}"),
    }
}
