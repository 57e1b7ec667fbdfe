//! Explains why this node is not a member yet.

use super::Status;
use pagemesh_seal::Refused;
use std::net::SocketAddr;

impl Status<'_> {
    /// Explains why this node, which was declared dead, is not a member again, and the cure.
    pub(super) fn not_admitted_again(&self) -> String {
        let why = self.refused().map_or_else(
            || {
                "if that takes long, see that the hosts of the other members can be reached by \
                 UDP in both directions"
                    .into()
            },
            |(by, why)| turned_away(by, why),
        );
        format!(
            "this node was declared dead, because it was stopped or cut off, and is joining again; \
             its programs wait for that: {why}"
        )
    }

    /// Explains why this node is not a member yet, and the cure.
    pub(crate) fn not_admitted(&self) -> String {
        let Some(join) = self.about.join else {
            return "not admitted yet".into();
        };
        let why = match (self.refused(), self.node.redirected_to()) {
            (Some((by, why)), _) => turned_away(by, why),
            (None, Some(first)) if first != join => no_first_node(join, first),
            _ => no_answer(join, self.about.address),
        };
        format!("not admitted yet: {why}")
    }

    /// Where, and why, this daemon was last refused when it introduced itself.
    fn refused(&self) -> Option<(SocketAddr, Refused)> {
        self.executor.network.sealing.as_ref()?.turned_away()
    }
}

fn turned_away(by: SocketAddr, why: Refused) -> String {
    if why == Refused::Expired {
        return format!(
            "{by} answers that the join token has expired, or the clocks of both hosts differ; \
             make a new one there (`pagemesh key token`)"
        );
    }
    format!(
        "{by} answers that it does not accept the key or join token of this daemon: copy the \
         present key file from a host of the cluster, or make a new token with it. A node that \
         came by a token itself has no key file and lets nobody in: then name another by --join"
    )
}

fn no_first_node(join: SocketAddr, first: SocketAddr) -> String {
    format!(
        "{join} answers that {first}, the coordinator, admits hosts, and that one does not answer; \
         start its daemon again on its host if it has ended, or promote the standby (`pagemesh \
         status` there names it), and see that UDP port {} is open \
         between it and this host",
        first.port()
    )
}

fn no_answer(join: SocketAddr, here: SocketAddr) -> String {
    format!(
        "{join} does not answer; see that its daemon runs, that UDP port {} is open in both \
         directions, and that {here} is an address it can reach (--bind, --advertise)",
        join.port()
    )
}
