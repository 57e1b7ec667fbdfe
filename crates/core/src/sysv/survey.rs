//! Totals of the cluster's objects; each node knows only its own.

use super::Sysv;
use crate::on_reply::OnReply;
use crate::shell::Cx;
use crate::steps::Step;
use pagemesh_wire::peer::{Call, Refusal, Reply};
use pagemesh_wire::sysv::{Ask, Outcome, Usage};
use pagemesh_wire::{ClientId, Ticket};
use serde::{Deserialize, Serialize};

/// The totals of the nodes that have answered so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Survey {
    client: ClientId,
    /// The number of nodes that have not answered.
    open: u32,
    sum: Option<Usage>,
}

impl Survey {
    fn add(&mut self, usage: Usage) {
        let sum = self.sum.get_or_insert(Usage {
            highest: -1,
            objects: 0,
            parts: 0,
            bytes: 0,
            ..usage
        });
        sum.highest = sum.highest.max(usage.highest);
        sum.objects = sum.objects.saturating_add(usage.objects);
        sum.parts = sum.parts.saturating_add(usage.parts);
        sum.bytes = sum.bytes.saturating_add(usage.bytes);
    }
}

impl Sysv {
    /// Drops a survey whose request was withdrawn.
    pub(super) fn end_survey(&mut self, ticket: Ticket) {
        self.surveys.remove(&ticket);
    }

    pub(super) fn end_surveys_of(&mut self, client: ClientId) {
        self.surveys.retain(|_, survey| survey.client != client);
    }

    /// A process asks for the totals: asks every node.
    pub(super) fn survey(
        &mut self,
        cx: &Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        ask: &Ask,
    ) -> Vec<Step> {
        let nodes = &cx.shell.alive;
        let survey = Survey {
            client,
            open: nodes.iter().count() as u32,
            sum: None,
        };
        self.surveys.insert(ticket, survey);
        let ask_one = |node| {
            let call = Call::Sysv(Box::new(ask.clone()));
            Step::Call(node, call, OnReply::Survey(ticket, client))
        };
        nodes.iter().map(ask_one).collect()
    }

    /// A node has told its totals, or never will, because it is gone or silent.
    pub(super) fn surveyed(&mut self, cx: &mut Cx<'_>, ticket: Ticket, reply: &Reply) {
        let Some(survey) = self.surveys.get_mut(&ticket) else {
            return;
        };
        if let Reply::Sysv(Outcome::Usage(usage)) = reply {
            survey.add(*usage);
        }
        survey.open -= 1;
        if survey.open > 0 {
            return;
        }
        let sum = survey.sum;
        self.surveys.remove(&ticket);
        match sum {
            Some(sum) => cx.reply(ticket, crate::effect::Reply::Sysv(Outcome::Usage(sum))),
            None => cx.refuse(ticket, Refusal::NotMember),
        }
    }
}
