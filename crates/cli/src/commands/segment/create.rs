//! `pagemesh segment create`.

use super::show;
use crate::control::unexpected;
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output;
use crate::units::{parse_duration, parse_size};
use anyhow::Result;
use clap::{Args, ValueEnum};
use pagemesh_wire::ByteLen;
use pagemesh_wire::local::{Reply, Request};
use pagemesh_wire::peer::{Manager, Policy, SegmentSpec, Window};

/// Create a segment
#[derive(Args)]
pub(crate) struct Create {
    /// Its name, unique in the cluster
    name: String,
    /// How large, for example 64M or 4GiB
    #[arg(value_parser = parse_size)]
    size: u64,
    /// Who may use it, as of a file
    #[arg(long, default_value = "600", value_parser = parse_mode)]
    mode: u16,
    /// What loads see: sequential, sequential-fixed; release, eager, hybrid, invalidate,
    /// where locks and barriers order accesses; views, where copies may be old; or private,
    /// private-copies: the memory of one node, which may be larger than its frames
    #[arg(long, default_value = "sequential")]
    policy: Policy,
    /// Who keeps the order of requests for a page (sequential)
    #[arg(long, value_enum)]
    manager: Option<ManagerName>,
    /// How long a node keeps a page it was granted: auto, 0, or for example 2ms
    /// (sequential)
    #[arg(long, value_name = "WINDOW", value_parser = parse_window)]
    window: Option<Window>,
    /// How much of it is in this host's memory at most, for example 2G (private)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    local: Option<u64>,
    /// Bytes of a short page, a multiple of 8 up to 4096; 32 unless it is given (views)
    #[arg(long, value_name = "BYTES")]
    prefix: Option<u16>,
    /// Other nodes that have what was published, or what others have seen or heard of, so that it
    /// outlives the node that has the pages: 0 or 1 (sequential, views, release)
    #[arg(long, value_name = "N", default_value_t = 0)]
    replicas: u8,
    /// Do nothing if it exists already
    #[arg(long)]
    if_missing: bool,
}

/// Names of managers on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum ManagerName {
    /// The owner, found along hints
    Dynamic,
    /// The node that created the segment
    Fixed,
}

impl Create {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let policy = chosen(self.policy, self.manager, self.window)?;
        let policy = with_prefix(policy, self.prefix)?;
        let spec = SegmentSpec {
            size: ByteLen(self.size),
            mode: self.mode,
            policy: self.local.map_or(Ok(policy), |local| {
                policy
                    .with_local(ByteLen(local))
                    .map_err(anyhow::Error::msg)
            })?,
            replicas: self.replicas,
        };
        let mut control = crate::commands::connect(global)?;
        let reply = control.ask(Request::Open {
            name: self.name,
            create: Some(spec),
            exclusive: !self.if_missing,
            write: true,
        })?;
        let info = match reply {
            Reply::Opened { info } => info,
            other => return unexpected(&other),
        };
        // The segment lives on until it is removed.
        control.ask(Request::Close { segment: info.id })?;
        match global.output {
            Format::Json => output::json(show::document(&info))?,
            Format::Table | Format::Wide => output::lines([&info.name])?,
        }
        Ok(Exit::OK)
    }
}

/// The policy, with the given manager and window.
fn chosen(policy: Policy, name: Option<ManagerName>, how_long: Option<Window>) -> Result<Policy> {
    let Some((manager, window)) = policy.sequential() else {
        anyhow::ensure!(
            name.is_none() && how_long.is_none(),
            "pages of this policy have no manager and no window; leave out --manager and \
             --window, or choose --policy sequential"
        );
        return Ok(policy);
    };
    let manager = name.map_or(manager, |name| match name {
        ManagerName::Dynamic => Manager::Dynamic,
        ManagerName::Fixed => Manager::Fixed,
    });
    let window = how_long.unwrap_or(window);
    Ok(Policy::Sequential { manager, window })
}

/// The policy, with short pages of so many bytes; the daemon says which are possible.
fn with_prefix(policy: Policy, prefix: Option<u16>) -> Result<Policy> {
    match (policy, prefix) {
        (policy, None) => Ok(policy),
        (Policy::Views { .. }, Some(prefix)) => Ok(Policy::Views { prefix }),
        _ => anyhow::bail!(
            "only segments of policy views have short pages; leave out --prefix, or choose --policy views"
        ),
    }
}

fn parse_mode(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text.trim_start_matches("0o"), 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "a mode has three octal digits, for example 600 or 664".to_owned())
}

fn parse_window(text: &str) -> Result<Window, String> {
    if text == "auto" {
        return Ok(Window::Auto);
    }
    Ok(Window::Nanos(parse_duration(text)?.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_for_sequential_pages() {
        let release: Policy = "hybrid".parse().unwrap();
        assert_eq!(chosen(release, None, None).unwrap(), release);
        let why = chosen(release, None, Some(Window::Auto)).unwrap_err();
        assert!(why.to_string().contains("--policy sequential"), "{why}");
        let fixed = "sequential-fixed".parse().unwrap();
        let window = Window::Nanos(0);
        let manager = Manager::Fixed;
        let expected = Policy::Sequential { manager, window };
        assert_eq!(chosen(fixed, None, Some(window)).unwrap(), expected);
    }

    #[test]
    fn eb2_the_length_of_short_pages_is_for_views() {
        let views: Policy = "views".parse().unwrap();
        let longer = with_prefix(views, Some(256)).unwrap();
        assert_eq!(longer, Policy::Views { prefix: 256 });
        assert_eq!(with_prefix(views, None).unwrap(), views);
        let why = with_prefix(Policy::default(), Some(256)).unwrap_err();
        assert!(why.to_string().contains("--policy views"), "{why}");
    }

    #[test]
    fn modes_and_windows_are_read() {
        assert_eq!(parse_mode("664"), Ok(0o664));
        assert_eq!(parse_mode("0640"), Ok(0o640));
        assert!(parse_mode("888").is_err() && parse_mode("7777").is_err());
        assert_eq!(parse_window("0"), Ok(Window::Nanos(0)));
        assert_eq!(parse_window("2ms"), Ok(Window::Nanos(2_000_000)));
        assert!(parse_window("soon").is_err());
    }
}
