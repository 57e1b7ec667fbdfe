//! The simulated network: the seed decides the fate of each datagram.

use crate::canary::Canary;
use crate::dice::Dice;
use pagemesh_core::Time;
use pagemesh_core::release::Body;
use pagemesh_wire::peer::{Message, PolicyMessage};

/// Delays and error rates of the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    /// Nanoseconds that every datagram takes at least.
    pub(crate) base: u64,
    /// Random further nanoseconds at most; more than `base` reorders datagrams.
    pub(crate) jitter: u64,
    /// Datagrams of a thousand that are delayed ...
    pub(crate) late: u32,
    /// ... by up to this many nanoseconds.
    pub(crate) latest: u64,
    /// Datagrams of a thousand that are lost.
    pub(crate) loss: u32,
    /// Datagrams of a thousand that arrive twice.
    pub(crate) twice: u32,
    /// Datagrams of a thousand that are followed by garbage.
    pub(crate) garbage: u32,
}

/// The fate of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is lost.
    Lost,
    /// It is held until the scenario releases it.
    Held,
    /// It arrives after this many nanoseconds, and a second time after that many, if given.
    Arrives(u64, Option<u64>),
}

impl Fate {
    /// When a datagram that leaves now arrives: never, once or twice.
    pub(crate) fn arrivals(self, now: Time) -> impl Iterator<Item = Time> {
        let delays = match self {
            Self::Lost | Self::Held => [None; 2],
            Self::Arrives(first, second) => [Some(first), second],
        };
        let delays = delays.into_iter().flatten();
        delays.map(move |delay| Time(now.0 + delay.max(1)))
    }
}

/// What a host sends through, one datagram after the other.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Nanoseconds that a page takes.
    page: u64,
    /// When the last datagram has left.
    left: Time,
    /// Pages that left.
    pub(crate) pages: u64,
    /// Nanoseconds that a datagram waits at most; others are dropped.
    longest: u64,
}

#[cfg(test)]
impl Link {
    pub(crate) fn new(page: u64) -> Self {
        Self {
            page,
            left: Time(0),
            pages: 0,
            longest: u64::MAX,
        }
    }

    /// Where a datagram waits for so long at most.
    pub(crate) fn bounded(self, longest: u64) -> Self {
        Self { longest, ..self }
    }

    /// How long a datagram that is sent now waits behind those before it, and takes itself; none if it is
    /// dropped.
    fn queue(&mut self, now: Time, kind: &str) -> Option<u64> {
        if self.left.0.saturating_sub(now.0) > self.longest {
            return None;
        }
        let has_page = matches!(kind, "Data" | "Pass" | "PolicyPage" | "CopyReply");
        self.pages += u64::from(has_page);
        let takes = if has_page { self.page } else { self.page / 40 };
        self.left = Time(now.0.max(self.left.0) + takes);
        Some(self.left.0 - now.0)
    }
}

/// A scenario's treatment of certain datagrams.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The message's name; `None` for all.
    pub(crate) kind: Option<String>,
    pub(crate) then: Meddling,
    /// Number of datagrams that the rule applies to.
    pub(crate) times: u32,
}

/// How a scenario interferes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meddling {
    Drop,
    Hold,
    Twice,
}

/// The network between all hosts.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    weather: Weather,
    dice: Dice,
    garbage: Dice,
    /// Sender, receiver, end: no datagram gets through before the end.
    cuts: Vec<(usize, usize, Time)>,
    rules: Vec<Rule>,
    /// Hosts whose datagrams leave one after the other: the nanoseconds that each takes, and when the
    /// last of them has left.
    narrow: Vec<(usize, u64, Time)>,
    /// Hosts whose links carry so many bytes a second.
    #[cfg(test)]
    pub(crate) links: Vec<Link>,
    /// Hosts behind a long line, and the nanoseconds that it adds each way.
    far: Vec<(usize, u64)>,
    canary: Option<Canary>,
}

impl Network {
    pub(crate) fn new(seed: u64, weather: Weather, canary: Option<Canary>) -> Self {
        let dice = Dice::stream(seed, "network");
        Self {
            weather,
            dice,
            garbage: Dice::stream(seed, "garbage"),
            cuts: Vec::new(),
            rules: Vec::new(),
            narrow: Vec::new(),
            #[cfg(test)]
            links: Vec::new(),
            far: Vec::new(),
            canary,
        }
    }

    /// Delays datagrams to and from a host by so many more nanoseconds.
    #[cfg(test)]
    pub(crate) fn put_far(&mut self, host: usize, nanos: u64) {
        self.far.push((host, nanos));
    }

    /// From now on a host sends one datagram after the other, and each takes so many nanoseconds.
    pub(crate) fn put_narrow(&mut self, host: usize, nanos: u64) {
        self.narrow.push((host, nanos, Time(0)));
    }

    /// How long a datagram that is sent now waits behind those before it, and takes itself.
    fn queue(&mut self, now: Time, from: usize) -> u64 {
        let mut narrow = self.narrow.iter_mut();
        let Some((_, nanos, left)) = narrow.find(|(host, ..)| *host == from) else {
            return 0;
        };
        *left = Time(now.0.max(left.0) + *nanos);
        left.0 - now.0
    }

    /// Cuts off one direction between two hosts until a time; the other direction still works.
    pub(crate) fn cut(&mut self, from: usize, to: usize, until: Time) {
        self.cuts.push((from, to, until));
    }

    /// Forgets cuts that have ended.
    pub(crate) fn forget_cuts(&mut self, now: Time) {
        self.cuts.retain(|(.., until)| *until > now);
    }

    /// Ends all impairments of the network.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.weather.loss = 0;
        self.weather.twice = 0;
        self.weather.late = 0;
        self.weather.garbage = 0;
    }

    /// Garbage to send along with a datagram: part of it, or all of it with another protocol
    /// version or from another cluster.
    pub(crate) fn garbage(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        if !self.garbage.chance(self.weather.garbage) {
            return None;
        }
        let mut bytes = datagram.to_vec();
        match self.garbage.below(3) {
            0 => bytes.truncate(self.garbage.index(datagram.len())),
            1 => bytes[2] = bytes[2].wrapping_add(1),
            _ => bytes[8] ^= 0x55,
        }
        Some(bytes)
    }

    /// Adds a rule for datagrams to come.
    pub(crate) fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Decides the fate of a datagram that leaves now.
    pub(crate) fn fate(&mut self, now: Time, from: usize, to: usize, kind: &str) -> Fate {
        // Every datagram draws the same count of random numbers, so that a cut does not shift the
        // rest.
        let (lost, twice) = (
            self.dice.chance(self.weather.loss),
            self.dice.chance(self.weather.twice),
        );
        let far = self
            .far
            .iter()
            .filter(|(host, _)| [from, to].contains(host));
        let far: u64 = far.map(|(_, nanos)| nanos).sum();
        let far = far + self.queue(now, from);
        #[cfg(test)]
        let queued = self.links.get_mut(from).map(|link| link.queue(now, kind));
        #[cfg(test)]
        let (lost, far) = match queued {
            Some(queued) => (lost || queued.is_none(), far + queued.unwrap_or(0)),
            None => (lost, far),
        };
        let (first, second) = (far + self.delay(), far + self.delay());
        if self.canary == Some(Canary::PassAckLost) && matches!(kind, "PassAck" | "PassAckMany") {
            return Fate::Lost;
        }
        match self.meddling(from, to, kind) {
            Some(Meddling::Drop) => return Fate::Lost,
            Some(Meddling::Hold) => return Fate::Held,
            Some(Meddling::Twice) => return Fate::Arrives(first, Some(second)),
            None => {}
        }
        let is_cut = |(f, t, until): &(usize, usize, Time)| (*f, *t) == (from, to) && now < *until;
        if lost || self.cuts.iter().any(is_cut) {
            Fate::Lost
        } else {
            Fate::Arrives(first, twice.then_some(second))
        }
    }

    fn delay(&mut self) -> u64 {
        let late = self.dice.chance(self.weather.late);
        let tail = self.dice.below(self.weather.latest + 1);
        self.weather.base + self.dice.below(self.weather.jitter + 1) + if late { tail } else { 0 }
    }

    fn meddling(&mut self, from: usize, to: usize, kind: &str) -> Option<Meddling> {
        let fits = |rule: &Rule| {
            (rule.from, rule.to) == (from, to) && rule.kind.as_deref().is_none_or(|k| k == kind)
        };
        let at = self.rules.iter().position(fits)?;
        let then = self.rules[at].then;
        self.rules[at].times -= 1;
        if self.rules[at].times == 0 {
            self.rules.remove(at);
        }
        Some(then)
    }
}

/// The name of a message in scenarios.
pub(crate) fn kind(message: &Message) -> &'static str {
    match message {
        Message::Ask(_) => "Ask",
        Message::Data(_) => "Data",
        Message::Pass(_) => "Pass",
        Message::PassAck(_) => "PassAck",
        Message::Invalidate(_) => "Invalidate",
        Message::InvalidateAck(_) => "InvalidateAck",
        Message::Served(_) => "Served",
        Message::Call { .. } => "Call",
        Message::Reply { .. } => "Reply",
        Message::CancelCall { .. } => "CancelCall",
        Message::Join(_) => "Join",
        Message::Welcome(_) => "Welcome",
        Message::Unwelcome { .. } => "Unwelcome",
        Message::Heartbeat { .. } => "Heartbeat",
        Message::HeartbeatAck { .. } => "HeartbeatAck",
        Message::Expelled => "Expelled",
        Message::Locate(_) => "Locate",
        Message::Located(_) => "Located",
        Message::Lost(_) => "Lost",
        Message::Regain(_) => "Regain",
        Message::Redirect { .. } => "Redirect",
        Message::AskMany(_) => "AskMany",
        Message::SendCopies(_) => "SendCopies",
        Message::HaveReply { .. } => "HaveReply",
        Message::Acquire(_) => "Acquire",
        Message::Grant(_) => "Grant",
        Message::Diffs(_) => "Diffs",
        Message::Policy(said) | Message::PolicyPage(said) => {
            Body::read(&said.body).map_or("Policy", |body| body.name())
        }
        Message::PolicyUndelivered(_) => "PolicyUndelivered",
        Message::PassAckMany(_) => "PassAckMany",
        Message::Put(_) => "Put",
        Message::Got(_) => "Got",
        Message::DonorReply(_) => "DonorReply",
        Message::Global(_) => "Global",
        Message::SharedPage(_) => "SharedPage",
        Message::SharedPut(_) => "SharedPut",
        Message::Forward(_) => "Forward",
        Message::Resume(_) => "Resume",
        Message::Resumed(_) => "Resumed",
        Message::Runs { .. } => "Runs",
        Message::Signs { .. } => "Signs",
        Message::SignsHeard { .. } => "SignsHeard",
    }
}

/// A message as the log shows it: the message of a policy as text, not as bytes.
pub(crate) fn legible(message: &Message) -> String {
    let read = |said: &PolicyMessage| Body::read(&said.body);
    match message {
        Message::Policy(said) | Message::PolicyPage(said) | Message::PolicyUndelivered(said) => {
            read(said).map_or_else(|| format!("{message:?}"), |body| format!("{body:?}"))
        }
        other => format!("{other:?}"),
    }
}

/// True if a message only shows that its sender lives.
pub(crate) fn is_sign_of_life(kind: &str) -> bool {
    let signs = ["Heartbeat", "HeartbeatAck", "Runs", "Signs", "SignsHeard"];
    signs.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(weather: Weather, count: usize) -> Vec<Fate> {
        let mut network = Network::new(1, weather, None);
        (0..count)
            .map(|_| network.fate(Time(0), 0, 1, "Ask"))
            .collect()
    }

    #[test]
    fn loses_and_doubles_as_often_as_told() {
        let weather = Weather {
            base: 10,
            jitter: 5,
            loss: 300,
            twice: 100,
            ..Weather::default()
        };
        let fates = fates(weather, 10_000);
        let lost = fates.iter().filter(|fate| **fate == Fate::Lost).count();
        assert!((2800..3200).contains(&lost), "{lost}");
        let twice = |fate: &&Fate| matches!(fate, Fate::Arrives(_, Some(_)));
        let twice = fates.iter().filter(twice).count();
        assert!((600..800).contains(&twice), "{twice}");
        for fate in fates {
            if let Fate::Arrives(first, _) = fate {
                assert!((10..=15).contains(&first));
            }
        }
    }

    #[test]
    fn cuts_are_one_way_and_end() {
        let mut network = Network::new(
            1,
            Weather {
                base: 1,
                ..Weather::default()
            },
            None,
        );
        network.cut(0, 1, Time(100));
        assert_eq!(network.fate(Time(99), 0, 1, "Ask"), Fate::Lost);
        assert_eq!(network.fate(Time(99), 1, 0, "Ask"), Fate::Arrives(1, None));
        assert_eq!(network.fate(Time(100), 0, 1, "Ask"), Fate::Arrives(1, None));
        network.cut(0, 1, Time(1000));
        network.heal();
        assert_eq!(network.fate(Time(200), 0, 1, "Ask"), Fate::Arrives(1, None));
    }

    #[test]
    fn rules_meddle_so_many_times() {
        let mut network = Network::new(
            1,
            Weather {
                base: 1,
                ..Weather::default()
            },
            None,
        );
        let rule = Rule {
            from: 0,
            to: 1,
            kind: Some("Data".into()),
            then: Meddling::Hold,
            times: 2,
        };
        network.add_rule(rule);
        assert_eq!(network.fate(Time(0), 0, 1, "Ask"), Fate::Arrives(1, None));
        assert_eq!(network.fate(Time(0), 0, 1, "Data"), Fate::Held);
        assert_eq!(network.fate(Time(0), 0, 1, "Data"), Fate::Held);
        assert_eq!(network.fate(Time(0), 0, 1, "Data"), Fate::Arrives(1, None));
    }
}
