//! The costs of operations, and how they follow from measurements.

use core::time::Duration;

/// The steps of a fault that brings a page from another node, as the time stamps of
/// both daemons tell them, and raw messages between the same nodes.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// From the fault's arrival at the daemon to the request's departure.
    pub ask: Duration,
    /// Until the owner has sent the page.
    pub request: Duration,
    /// Until the page has arrived.
    pub transfer: Duration,
    /// Until it is mapped, as far as stamps tell that from its arrival.
    pub install: Duration,
    /// As the thread sees it.
    pub total: Duration,
    /// A short raw message, one way.
    pub short: Duration,
    /// A raw message of a page, one way.
    pub page: Duration,
}

/// As the daemon's waiter does.
const AWAKE: Duration = Duration::from_micros(50);

/// The costs of operations.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// From a thread's access until its daemon knows.
    pub trap: Duration,
    /// A daemon decides about a fault.
    pub fault: Duration,
    /// A daemon decides about a request, and takes the page's rights away here.
    pub serve: Duration,
    /// A daemon decides about anything else that comes.
    pub take: Duration,
    /// A page is put in place, or its rights are raised.
    pub install: Duration,
    /// Until a thread that was woken runs.
    pub wake: Duration,
    /// A short message, one way: half is its sender's, half its receiver's.
    pub short: Duration,
    /// The same with a page.
    pub page: Duration,
    /// A page is taken away from the processes of its owner, or of a reader.
    pub evict: Duration,
    /// Until a daemon runs that slept since nothing had come for a while.
    pub rouse: Duration,
    /// The same while a program uses its processor.
    pub preempt: Duration,
    /// How long a daemon looks for more before it sleeps.
    pub awake: Duration,
    /// Bits that a line carries in a second; none: as many as memory.
    pub rate: Option<u64>,
    /// Bytes of a page on the line.
    pub page_bytes: u32,
    /// Bytes of each packet's headers on the line, where its rate matters.
    pub header_bytes: u32,
    /// The most bytes of a page that a packet holds.
    pub packet_bytes: u32,
}

impl Costs {
    /// The cost of each step is taken from its stamps, without the halves of messages in it. Time
    /// that no stamp sees (the kernel stops the thread, places the page and lets the thread go on)
    /// is divided evenly. A fault then takes as long as the measured one.
    #[must_use]
    pub fn of(steps: &Steps) -> Self {
        let (short, page) = (steps.short / 2, steps.page / 2);
        let fault = steps.ask.saturating_sub(short);
        let serve = steps.request.saturating_sub(short + page);
        let take = (steps.transfer + steps.install).saturating_sub(page);
        let seen = fault + serve + take + steps.short + steps.page;
        let unseen = steps.total.saturating_sub(seen) / 3;
        Self {
            trap: unseen,
            fault,
            serve,
            take,
            install: unseen,
            wake: unseen,
            short: steps.short,
            page: steps.page,
            evict: Duration::ZERO,
            rouse: Duration::ZERO,
            preempt: Duration::ZERO,
            awake: AWAKE,
            rate: None,
            page_bytes: 4096,
            header_bytes: 0,
            packet_bytes: 4096,
        }
    }

    /// How long a line is busy with a message; with a page behind it or not.
    pub(crate) fn on_the_line(&self, with_page: bool) -> Duration {
        /// The size of a message without a page, about, in bytes.
        const MESSAGE: u32 = 40;
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let page = if with_page { self.page_bytes } else { 0 };
        let packets = page.div_ceil(self.packet_bytes).max(1);
        let bytes = MESSAGE + page + packets * self.header_bytes;
        Duration::from_nanos(u64::from(bytes) * 8 * 1_000_000_000 / rate)
    }
}
