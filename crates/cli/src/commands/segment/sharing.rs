//! `segment inspect --sharing`: true or false sharing, its place, and advice (MB5).

use crate::control::{Control, unexpected};
use crate::global::Format;
use crate::output::{self, Table};
use anyhow::Result;
use pagemesh_wire::PageIndex;
use pagemesh_wire::local::{Reply, Request, SharingLine};
use serde_json::{Value, json};
use std::time::Duration;

/// A page and the nodes that write to it.
struct Page {
    page: PageIndex,
    writers: Vec<SharingLine>,
}

/// The kind of sharing, as far as writing shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// One node writes.
    One,
    /// Nodes write different bytes.
    False,
    /// Nodes write the same bytes.
    True,
    /// Sometimes the same bytes, more often others.
    Mixed,
}

/// Has the node watch the segment for a while, and prints the result. Without any time it prints
/// the records made so far.
pub(super) fn show(
    control: &mut Control,
    name: &str,
    time: Duration,
    format: Format,
) -> Result<()> {
    let watch = |control: &mut Control, on| {
        let name = name.to_owned();
        control.ask(Request::WatchSharing { name, on }).map(drop)
    };
    if !time.is_zero() {
        watch(control, true)?;
        std::thread::sleep(time);
    }
    let pages = ask(control, name)?;
    if !time.is_zero() {
        watch(control, false)?;
    }
    match format {
        Format::Json => output::json(json!({
            "node": control.node.0,
            "segment": name,
            "pages": pages.iter().map(document).collect::<Vec<_>>(),
        })),
        Format::Table | Format::Wide => print(name, &pages),
    }
}

fn ask(control: &mut Control, name: &str) -> Result<Vec<Page>> {
    let mut pages: Vec<Page> = Vec::new();
    loop {
        let first = pages.last().map_or(PageIndex(0), |last| {
            PageIndex(last.page.0.saturating_add(1))
        });
        let name = name.to_owned();
        let lines = match control.ask(Request::Sharing { name, first })? {
            Reply::Sharing(report) => report.lines,
            other => return unexpected(&other),
        };
        if lines.is_empty() {
            return Ok(pages);
        }
        for line in lines {
            match pages.last_mut() {
                Some(last) if last.page == line.page => last.writers.push(line),
                _ => pages.push(Page {
                    page: line.page,
                    writers: vec![line],
                }),
            }
        }
    }
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::One => "one writer",
            Self::False => "false",
            Self::True => "true",
            Self::Mixed => "mixed",
        }
    }
}

/// Remedies that leave the data where it is.
const OTHERWISE: &str = "or raise the time window, or, where locks and barriers of PageMesh order all \
                         accesses, use policy `release`, under which each node writes to its own copy";

impl Page {
    fn verdict(&self) -> Verdict {
        let (turns, met) = self
            .writers
            .first()
            .map_or((0, 0), |line| (line.turns, line.met));
        match () {
            () if self.writers.len() < 2 || turns == 0 => Verdict::One,
            () if met == 0 => Verdict::False,
            () if met * 2 >= turns => Verdict::True,
            () => Verdict::Mixed,
        }
    }

    fn turns(&self) -> u32 {
        self.writers.first().map_or(0, |line| line.turns)
    }

    /// Advice for the page.
    fn advice(&self) -> String {
        match self.verdict() {
            Verdict::One => "one node writes, whoever else has the page reads: nothing to part".into(),
            Verdict::True => "several nodes write the same bytes, which padding does not part: hold a \
                              write lock around a series of stores, raise the time window, or let one \
                              node write and the others read"
                .into(),
            Verdict::Mixed => "nodes write the same bytes sometimes, others more often: give what only one \
                               node writes pages of its own, and look again"
                .into(),
            Verdict::False => self.parting(),
        }
    }

    /// Where to separate the parts of several nodes; if they cannot be separated, what else helps.
    fn parting(&self) -> String {
        let Some(borders) = self.borders() else {
            return format!(
                "what different nodes write is interleaved: sort it by who writes it, each part on \
                 pages of its own, {OTHERWISE}"
            );
        };
        let pads = borders.iter().map(|border| {
            let pad = pagemesh_wire::PAGE_SIZE - border;
            format!("{pad} bytes before byte {border}")
        });
        let pads: Vec<_> = pads.collect();
        format!(
            "parts of different nodes meet here: pad {}, so that the next part begins a page; or split \
             the segment there, {OTHERWISE}",
            pads.join(" and ")
        )
    }

    /// The borders between the writers' parts, if no part lies inside another's.
    fn borders(&self) -> Option<Vec<usize>> {
        let span = |line: &SharingLine| Some((line.ranges.first()?.begin, line.ranges.last()?.end));
        let mut spans: Vec<_> = self.writers.iter().filter_map(span).collect();
        spans.sort_unstable();
        let apart = spans.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        apart.then(|| spans[1..].iter().map(|span| usize::from(span.0)).collect())
    }
}

fn ranges(line: &SharingLine) -> String {
    let ranges = line.ranges.iter();
    let ranges: Vec<_> = ranges
        .map(|range| format!("{}-{}", range.begin, range.end.saturating_sub(1)))
        .collect();
    ranges.join(",")
}

fn print(name: &str, pages: &[Page]) -> Result<()> {
    if pages.is_empty() {
        return output::lines([format!(
            "{name}: no page came or left changed meanwhile; let the program run, or watch for longer \
             (--for)"
        )]);
    }
    let mut table = Table::new(&[
        "PAGE", "SHARING", "TURNS", "NODE", "TIMES", "BYTES", "WHERE",
    ]);
    for page in pages {
        for (number, line) in page.writers.iter().enumerate() {
            let first = |text: String| if number == 0 { text } else { String::new() };
            table.row([
                first(page.page.to_string()),
                first(page.verdict().name().to_owned()),
                first(page.turns().to_string()),
                line.node.to_string(),
                line.times.to_string(),
                line.bytes.to_string(),
                ranges(line),
            ]);
        }
    }
    table.print()?;
    let advised = pages.iter().filter(|page| page.verdict() != Verdict::One);
    output::lines(advised.map(|page| format!("page {}: {}", page.page, page.advice())))
}

fn document(page: &Page) -> Value {
    let writers = page.writers.iter().map(|line| {
        json!({
            "node": line.node.0,
            "times": line.times,
            "bytes": line.bytes,
            "ranges": line.ranges.iter().map(|range| [range.begin, range.end]).collect::<Vec<_>>(),
        })
    });
    json!({
        "page": page.page.0,
        "sharing": page.verdict().name(),
        "turns": page.turns(),
        "met": page.writers.first().map_or(0, |line| line.met),
        "writers": writers.collect::<Vec<_>>(),
        "advice": page.advice(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::NodeId;
    use pagemesh_wire::local::WrittenRange;

    fn page(turns: u32, met: u32, parts: &[&[(u16, u16)]]) -> Page {
        let writers = parts.iter().enumerate().map(|(number, parts)| {
            let range = |&(begin, end): &(u16, u16)| WrittenRange { begin, end };
            SharingLine {
                page: PageIndex(1),
                node: NodeId(number as u16 + 1),
                times: 1,
                bytes: 1,
                ranges: parts.iter().map(range).collect(),
                turns,
                met,
            }
        });
        Page {
            page: PageIndex(1),
            writers: writers.collect(),
        }
    }

    #[test]
    fn bytes_apart_are_padded_apart() {
        let page = page(9, 0, &[&[(0, 1200)], &[(1200, 4096)]]);
        assert_eq!(page.verdict(), Verdict::False);
        assert!(
            page.advice().contains("pad 2896 bytes before byte 1200"),
            "{}",
            page.advice()
        );
        assert!(page.advice().contains("policy `release`"));
    }

    #[test]
    fn bytes_between_each_other_are_sorted() {
        let page = page(9, 0, &[&[(0, 8), (64, 72)], &[(32, 40)]]);
        assert_eq!(page.verdict(), Verdict::False);
        assert!(page.advice().contains("interleaved"), "{}", page.advice());
    }

    #[test]
    fn the_same_bytes_are_not_padded() {
        let both = page(9, 9, &[&[(0, 8)], &[(0, 8)]]);
        assert_eq!(both.verdict(), Verdict::True);
        assert!(both.advice().contains("write lock"));
        assert_eq!(
            page(9, 2, &[&[(0, 8)], &[(0, 8)]]).verdict(),
            Verdict::Mixed
        );
        assert_eq!(page(0, 0, &[&[(0, 8)]]).verdict(), Verdict::One);
    }
}
