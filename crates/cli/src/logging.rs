//! Where log lines go: standard error, and only there.

use crate::global::{Global, LogFormat};
use std::io::IsTerminal;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging; `PAGEMESH_LOG` overrides the flags.
pub(crate) fn start(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => Level::ERROR,
        (false, 0) => Level::INFO,
        (false, 1) => Level::DEBUG,
        (false, _) => Level::TRACE,
    };
    let asked = std::env::var("PAGEMESH_LOG").ok();
    let filter = asked
        .and_then(|text| filter(&text))
        .unwrap_or_else(|| Targets::new().with_default(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // The daemon goes on if its log cannot be written because the disk is full.
        .log_internal_errors(false)
        .with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    // A second start (in tests) changes nothing.
    let _ = match global.log_format {
        LogFormat::Json => registry.with(lines.json()).try_init(),
        LogFormat::Text => registry.with(lines.with_ansi(colours())).try_init(),
    };
}

/// `debug`, or `warn,pagemesh_daemon=trace`: a level for all, and others for modules.
fn filter(text: &str) -> Option<Targets> {
    text.parse().ok().filter(|_| !text.is_empty())
}

/// Colours only on a terminal, and not with `NO_COLOR`.
pub(crate) fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_for_all_and_others_for_modules() {
        let targets = filter("warn,pagemesh_daemon=trace").unwrap();
        assert!(targets.would_enable("pagemesh_daemon::serve", &Level::TRACE));
        assert!(targets.would_enable("pagemesh_cli", &Level::WARN));
        assert!(!targets.would_enable("pagemesh_cli", &Level::INFO));
        assert_eq!(filter(""), None);
        assert_eq!(filter("pagemesh=loud"), None);
    }
}
