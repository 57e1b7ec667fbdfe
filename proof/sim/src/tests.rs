use crate::check::Invariant;
use crate::{Campaign, Canary, Options, Profile, Summary, failure_report, rewrite_scenario, run};
use std::fs;

fn sweep(profile: Profile, from: u64, count: u64) {
    sweep_with(profile, from, count, false);
}

fn sweep_with(profile: Profile, from: u64, count: u64, replace: bool) {
    let summary = held(Campaign {
        replace,
        ..seeds(profile, from, count)
    });
    assert!(summary.stats.operations > count, "programs did something");
    assert!(summary.stats.untrapped > count, "kernels served accesses");
}

/// Seeds of a profile, with nothing else that goes wrong.
const fn seeds(profile: Profile, from: u64, count: u64) -> Campaign {
    Campaign {
        from,
        count,
        profile,
        canary: None,
        replace: false,
        takeover: false,
        resume: false,
        etcd: false,
        upgrade: false,
        large: None,
        stop_at_failure: true,
    }
}

/// Runs all seeds, which hold.
fn held(campaign: Campaign) -> Summary {
    let summary = campaign.run(|_| {});
    if let Some(failure) = summary.failures.first() {
        let options = Options {
            seed: failure.seed,
            profile: campaign.profile,
            replace: campaign.replace,
            takeover: campaign.takeover,
            resume: campaign.resume,
            etcd: campaign.etcd,
            upgrade: campaign.upgrade,
            large: campaign.large,
            ..Options::default()
        };
        panic!("{}", failure_report(options, 60).unwrap_or_default());
    }
    summary
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let options = Options {
            seed,
            profile: Profile::Harsh,
            ..Options::default()
        };
        let (one, two) = (
            run(options),
            run(Options {
                log: true,
                ..options
            }),
        );
        assert_eq!(one.hash, two.hash, "seed {seed}");
        assert_eq!(one.stats, two.stats, "seed {seed}");
        assert_ne!(
            one.hash,
            run(Options {
                seed: seed + 1000,
                ..options
            })
            .hash
        );
    }
}

/// An eighth of all seeds seal their datagrams.
#[test]
fn some_seeds_are_sealed() {
    let sealed = (0..64).filter(|seed| {
        let options = Options {
            seed: *seed,
            profile: Profile::Calm,
            ..Options::default()
        };
        run(options).stats.sealed > 0
    });
    assert!((1..24).contains(&sealed.count()));
}

/// A quarter of all seeds have narrow links.
#[test]
fn some_seeds_cut_their_messages() {
    let narrow = (0..64).filter(|seed| {
        let options = Options {
            seed: *seed,
            profile: Profile::Calm,
            ..Options::default()
        };
        run(options).stats.pieces > 0
    });
    let narrow = narrow.count();
    assert!((6..24).contains(&narrow), "{narrow}");
}

/// Two fifths of all seeds have hosts that are short of memory (F14).
#[test]
fn pages_leave_full_hosts() {
    let pressed = (0..64).filter(|seed| {
        let options = Options {
            seed: *seed,
            profile: Profile::Harsh,
            ..Options::default()
        };
        run(options).stats.pressed_out > 0
    });
    let pressed = pressed.count();
    assert!((12..40).contains(&pressed), "{pressed}");
}

#[test]
fn calm_seeds_hold() {
    sweep(Profile::Calm, 0, 250);
}

#[test]
fn mild_seeds_hold() {
    sweep(Profile::Mild, 10_000, 400);
}

#[test]
fn harsh_seeds_hold() {
    sweep(Profile::Harsh, 20_000, 400);
}

#[test]
fn wild_seeds_hold() {
    sweep(Profile::Wild, 30_000, 300);
}

#[test]
fn daemons_are_killed_and_replaced_from_their_journals() {
    sweep_with(Profile::Mild, 0, 24, true);
    sweep_with(Profile::Harsh, 10_000, 24, true);
}

/// The first host's daemon dies or stands still, early and late, and the standby takes over.
#[test]
fn standbys_take_over() {
    for (from, profile, count) in [
        (0, Profile::Calm, 60),
        (10_000, Profile::Mild, 60),
        (20_000, Profile::Harsh, 60),
    ] {
        let campaign = Campaign {
            takeover: true,
            ..seeds(profile, from, count)
        };
        assert_eq!(held(campaign).stats.promotions, campaign.count);
    }
}

/// Daemons go on as newer and as older programs, while all else goes wrong, too.
#[test]
fn clusters_are_rolled_over_and_back() {
    // What a member said of its program came late, after it was put back (20,002). Three streams of
    // pieces, of which a receiver took the one that was over for the present one (20,024). A page
    // that is held for a snapshot (10,041, with daemons that are killed).
    for (from, profile, replace) in [
        (0, Profile::Calm, false),
        (10_000, Profile::Mild, false),
        (10_030, Profile::Mild, true),
        (20_000, Profile::Harsh, false),
    ] {
        let campaign = Campaign {
            replace,
            upgrade: true,
            ..seeds(profile, from, 30)
        };
        let stats = held(campaign).stats;
        assert!(stats.upgraded > 3 * campaign.count, "{stats:?}");
    }
    // A full node gave pages to one that had answered a search without knowing the segment
    // (41,291). Several processes saved a segment without a lock, and each waited for the other ones'
    // holds to end (40,946).
    for seed in [40_946, 41_291] {
        let options = Options {
            seed,
            profile: Profile::Harsh,
            upgrade: true,
            ..Options::default()
        };
        assert!(run(options).failure.is_none(), "seed {seed}");
    }
}

/// Thirty seeds of each setting hold, and in each another node, or another life of one, coordinates.
fn another_takes_over(settings: &[(u64, Profile)], switch: impl Fn(&mut Campaign)) {
    for (from, profile) in settings {
        let mut campaign = seeds(*profile, *from, 30);
        switch(&mut campaign);
        assert!(held(campaign).stats.promotions >= campaign.count);
    }
}

/// The first host's daemon is killed, and goes on from its disk, which lacks what it had not written.
#[test]
fn coordinators_go_on_from_their_disks() {
    // The members end the session in which the coordinator had asked, and did not take it for a member
    // yet: they counted as dead, and never heard of it (10,109; 20,053; 20,062).
    let settings = [
        (0, Profile::Calm),
        (10_000, Profile::Mild),
        (10_085, Profile::Mild),
        (20_022, Profile::Harsh),
        (20_052, Profile::Harsh),
    ];
    another_takes_over(&settings, |campaign| campaign.resume = true);
}

/// Etcd elects another coordinator, whenever the one before and etcd itself fail.
#[test]
fn etcd_elects_coordinators() {
    // Etcd was out of reach while hosts joined, who counted as dead before they heard that they were
    // members (20,010; 20,145).
    let settings = [
        (0, Profile::Calm),
        (10_000, Profile::Mild),
        (20_000, Profile::Harsh),
        (20_130, Profile::Harsh),
    ];
    another_takes_over(&settings, |campaign| campaign.etcd = true);
}

/// A store that says too soon that it has a decision loses names that programs were told of.
#[test]
fn a_store_that_answers_too_soon_is_found() {
    let campaign = Campaign {
        etcd: true,
        canary: Some(Canary::KeptTooSoon),
        ..seeds(Profile::Calm, 0, 100)
    };
    let found = campaign.run(|_| {}).failures;
    assert!(
        found
            .iter()
            .any(|one| one.violation.invariant == Invariant::StoreKnows)
    );
}

/// Seeds that found a bug, with the bug.
#[test]
fn seeds_that_broke_something_hold() {
    let once = [
        // Granted to a node by one that died: no search began, since the home's hint named the very
        // node that asked.
        (10_484, Profile::Harsh, true),
        // A walk's requests, gathered in one datagram, stood before the grant in the same turn
        // that one of them relied on; the checker did not know of it yet.
        (4789, Profile::Harsh, false),
        // Under a hold, a load waited for the library, the library for a writer, the writer for the
        // end of the hold, though the page was this node's own.
        (263, Profile::Wild, false),
        // Two old grants to a node that had left: the older one was taken back.
        (40_326, Profile::Harsh, false),
        // An old grant to a node that had left: it had taken it and passed it on, to one that
        // stored and died. The lost page came back with old contents.
        (468_001_136, Profile::Wild, false),
        // An opening that was given up, since the first node was silent, was
        // executed all the same: the segment stayed open for ever.
        (58, Profile::Wild, false),
        (41_154, Profile::Wild, true),
        // A home that left while it searched told others that the page was lost.
        (41_125, Profile::Wild, false),
        // A grant was lost with its sender: the hand-outs of the library site ran in
        // circles between the requester and who had heard of the grant.
        (1088, Profile::Wild, false),
        // Two owners, one after the other, denied a page that was just coming to them, in
        // two rounds of a search: it was taken for lost.
        (731_202_579, Profile::Wild, false),
        // A new node at the address of one that had died got requests that were for the
        // dead one.
        (654_691_073, Profile::Wild, false),
        // An answer to a search told the home of an older owner than it had heard of
        // meanwhile: it forgot the newer one, and took an outdated copy.
        (112_566, Profile::Wild, false),
        // A node came and left before another heard of it: that one waited for ever for
        // its acknowledgement.
        (109_393, Profile::Wild, false),
        // Two homes left: with the first one what the second had executed for the
        // coordinator was forgotten.
        (23_561, Profile::Wild, false),
        // A host was admitted and declared dead without ever hearing of it, and its session with
        // the first node was worn: the first node sent it a member's hello for ever, and it never
        // heard that it was out.
        (104_116, Profile::Wild, false),
        // A node that was leaving while one of its processes waited for a run of pages to
        // pin: each page was handed over as it came, and asked for again.
        (717_345_935, Profile::Wild, false),
        (863_376_761, Profile::Wild, true),
        // A fixed manager went on handing a page out for a request that was fulfilled: its notice
        // was lost, and the requester was leaving and gave the page back at once.
        (992_157_537, Profile::Wild, false),
        // A page was lost that a node had once granted to one that left: it kept that
        // grant, and waited for its acknowledgement before it left itself.
        (529_695_072, Profile::Harsh, false),
    ];
    for (seed, profile, replace) in once {
        let options = Options {
            seed,
            profile,
            replace,
            ..Options::default()
        };
        assert!(run(options).failure.is_none(), "seed {seed}, {profile}");
    }
}

#[test]
fn every_canary_is_found() {
    for canary in Canary::ALL {
        let campaign = Campaign {
            from: 0,
            count: 300,
            profile: Profile::Mild,
            canary: Some(*canary),
            replace: false,
            takeover: false,
            resume: false,
            etcd: *canary == Canary::KeptTooSoon,
            upgrade: false,
            large: None,
            stop_at_failure: true,
        };
        let summary = campaign.run(|_| {});
        assert!(
            !summary.failures.is_empty(),
            "{canary} was not found in {} seeds",
            summary.seeds
        );
    }
}

/// Runs every transcript in `scenarios/`; with `UPDATE_SCENARIOS=1` it writes
/// down what happened instead of comparing.
#[test]
fn scenarios_happen_as_written() {
    let update = std::env::var_os("UPDATE_SCENARIOS").is_some();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("scenarios are there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let before = fs::read_to_string(&path).expect("readable");
        let after =
            rewrite_scenario(&before).unwrap_or_else(|why| panic!("{}, {why}", path.display()));
        if update {
            fs::write(&path, after).expect("writable");
        } else {
            let name = path.display();
            let line = before
                .lines()
                .zip(after.lines())
                .position(|(one, other)| one != other);
            assert!(
                before == after,
                "{name} happens differently from line {} on:\n{after}",
                line.map_or(0, |line| line + 1)
            );
        }
    }
}
