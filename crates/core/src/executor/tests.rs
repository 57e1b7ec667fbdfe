use super::*;
use core::convert::Infallible;
use pagemesh_wire::NodeId;

/// Writes down which steps are called.
#[derive(Default)]
struct Steps {
    called: Vec<String>,
    inputs: Vec<Input<'static>>,
    ended: Vec<usize>,
    reclaimed: Option<Reclaimed>,
    changed: bool,
    next: Vec<Next>,
}

impl Steps {
    fn call(&mut self, step: impl Into<String>) -> Result<(), Infallible> {
        self.called.push(step.into());
        Ok(())
    }
}

impl EffectExecutor for Steps {
    type Error = Infallible;

    fn send(
        &mut self,
        _: SocketAddr,
        _: Header,
        _: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Result<(), Infallible> {
        self.call(format!("send {page:?}"))
    }

    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Result<(), Infallible> {
        self.call("notice")
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Result<(), Infallible> {
        self.call(format!("fill {} {source:?}", pages.first))
    }

    fn map(&mut self, _: Mappings, pages: PageRange, rights: Rights) -> Result<(), Infallible> {
        self.call(format!("map {} {rights:?}", pages.first))
    }

    fn protect(&mut self, _: Mappings, pages: PageRange) -> Result<(), Infallible> {
        self.call(format!("protect {}", pages.first))
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Result<(), Infallible> {
        self.call(format!("evict {} {keep}", pages.first))
    }

    fn stow(&mut self, at: At) -> Result<(), Infallible> {
        self.call(format!("stow {}", at.1))
    }

    fn drop_stash(&mut self, at: At) -> Result<(), Infallible> {
        self.call(format!("drop stash {}", at.1))
    }

    fn fail(&mut self, _: MappingId, at: At, why: Refusal) -> Result<(), Infallible> {
        self.call(format!("fail {} {why:?}", at.1))
    }

    fn has_run(&mut self, at: At) -> Result<bool, Infallible> {
        self.call(format!("has run {}", at.1)).map(|()| true)
    }

    fn forget(&mut self, segment: SegmentId) -> Result<(), Infallible> {
        self.call(format!("forget {}", segment.0))
    }

    fn lend_lock(&mut self, key: SyncKey, _: ClientId, _: bool) -> Result<(), Infallible> {
        self.call(format!("lend {}", key.number))
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Result<Reclaimed, Infallible> {
        let reclaimed = self.reclaimed.expect("the test says");
        self.call(format!("reclaim {}", key.number))
            .map(|()| reclaimed)
    }

    fn reply(&mut self, ticket: Ticket, _: Reply) -> Result<(), Infallible> {
        self.call(format!("reply {}", ticket.0))
    }

    fn store(&mut self, pages: PageRange) -> Result<bool, Infallible> {
        self.call(format!("store {pages:?}"))?;
        Ok(true)
    }

    fn diff_work(&mut self, work: DiffWork) -> Result<(), Infallible> {
        self.execute_diff_work(work)
    }

    fn emit(&mut self, event: Event) -> Result<(), Infallible> {
        self.call(format!("emit {event:?}"))
    }

    fn follow(&mut self, input: Input<'static>) {
        self.inputs.push(input);
    }

    fn before(&mut self, index: usize, rest: &[Effect]) -> Next {
        assert!(!rest.is_empty());
        self.next.get(index).copied().unwrap_or(Next::Execute)
    }

    fn after(&mut self, index: usize) {
        self.ended.push(index);
    }
}

impl DiffExecutor for Steps {
    fn twin(&mut self, at: At, _: Source) -> Result<(), Infallible> {
        self.call(format!("twin {}", at.1))
    }

    fn diff(
        &mut self,
        _: SegmentId,
        name: DiffName,
        then: Afterwards,
        _: &[Rule],
    ) -> Result<bool, Infallible> {
        let changed = self.changed;
        self.call(format!("diff {} {then:?}", name.page))
            .map(|()| changed)
    }

    fn drop_twin(&mut self, at: At) -> Result<(), Infallible> {
        self.call(format!("drop twin {}", at.1))
    }

    fn keep_diffs(&mut self, _: SegmentId, names: &[DiffName]) -> Result<(), Infallible> {
        self.call(format!("keep {}", names.len()))
    }

    fn merge(&mut self, at: At, _: Source, _: (&[DiffName], &[Rule])) -> Result<(), Infallible> {
        self.call(format!("merge {}", at.1))
    }

    fn update(&mut self, at: At, _: (&[DiffName], &[Rule])) -> Result<(), Infallible> {
        self.call(format!("update {}", at.1))
    }

    fn send_diffs(&mut self, batch: &DiffBatch) -> Result<(), Infallible> {
        self.call(format!("send {} diffs", batch.names.len()))
    }

    fn compare(&mut self, _: SegmentId, pairs: &[(DiffName, DiffName)]) -> Result<(), Infallible> {
        self.call(format!("compare {}", pairs.len()))
    }

    fn forget_diffs(&mut self, _: SegmentId, _: &VectorTime) -> Result<(), Infallible> {
        self.call("forget diffs")
    }
}

const SEGMENT: SegmentId = SegmentId(7);
const PAGE: PageIndex = PageIndex(3);
const KEY: SyncKey = SyncKey {
    segment: SEGMENT,
    number: 5,
};

fn effects(all: impl IntoIterator<Item = Effect>) -> Effects {
    let mut effects = Effects::default();
    all.into_iter().for_each(|effect| effects.push(effect));
    effects
}

fn protect(page: u32) -> Effect {
    Effect::Protect {
        pages: (SEGMENT, PageIndex(page)).into(),
        mappings: Mappings::All,
    }
}

fn diff(then: Afterwards) -> Effect {
    Effect::Diffs(DiffWork::Diff {
        segment: SEGMENT,
        name: DiffName {
            page: PAGE,
            node: NodeId(1),
            interval: 1,
        },
        then,
        rules: Vec::new(),
    })
}

#[test]
fn effects_are_carried_out_in_order() {
    let mut steps = Steps::default();
    let mut all = effects([
        protect(1),
        Effect::Evict {
            pages: (SEGMENT, PAGE).into(),
            keep: true,
        },
        Effect::Emit(Event::Malformed {}),
        Effect::Forget { segment: SEGMENT },
    ]);
    let Ok(()) = steps.execute_all(&mut all);
    assert!(all.is_empty());
    let expected = ["protect 1", "evict 3 true", "emit Malformed", "forget 7"];
    assert_eq!(steps.called, expected);
    assert_eq!(steps.ended, [0, 1, 2, 3]);
}

#[test]
fn effects_that_are_done_are_passed_over_and_keep_their_numbers() {
    let next = vec![
        Next::Execute,
        Next::Execute,
        Next::Skip,
        Next::Execute,
        Next::Stop,
    ];
    let mut steps = Steps {
        next,
        ..Steps::default()
    };
    let mut all = effects((0..6).map(|page| protect(2 * page)));
    let Ok(()) = steps.execute_from(1, &mut all);
    assert_eq!(steps.called, ["protect 2", "protect 6"]);
    assert_eq!(steps.ended, [1, 2, 3], "what is skipped is done, too");
    assert!(all.is_empty(), "what stands behind the stop is dropped");
    let Ok(()) = steps.execute_from(9, &mut effects([protect(0)]));
    assert_eq!(steps.ended, [1, 2, 3]);
}

#[test]
fn a_token_comes_back_at_once_unless_a_client_holds_the_lock() {
    let reclaim = |reclaimed| {
        let mut steps = Steps {
            reclaimed: Some(reclaimed),
            ..Steps::default()
        };
        let Ok(()) = steps.execute(Effect::ReclaimLock { key: KEY });
        steps.inputs
    };
    assert_eq!(reclaim(Reclaimed::Marked), []);
    let returned = |recovered| {
        [Input::LockReturned {
            key: KEY,
            recovered,
        }]
    };
    assert_eq!(reclaim(Reclaimed::Back), returned(false));
    assert_eq!(reclaim(Reclaimed::Broken), returned(true));
}

#[test]
fn what_a_step_answers_becomes_an_input() {
    let mut steps = Steps::default();
    let Ok(()) = steps.execute(Effect::ConfirmUse {
        segment: SEGMENT,
        page: PAGE,
    });
    for changed in [true, false] {
        steps.changed = changed;
        let Ok(()) = steps.execute_all(&mut effects([
            diff(Afterwards::Drop),
            diff(Afterwards::Refresh),
        ]));
    }
    let (segment, page, used) = (SEGMENT, PAGE, true);
    let expected = [
        Input::UseConfirmed {
            segment,
            page,
            used,
        },
        Input::Unchanged { segment, page },
    ];
    assert_eq!(
        steps.inputs, expected,
        "only a refreshed twin is answered for"
    );
}
