use super::{Mistake, SystemV, Tried, nonsense, system_v};
use crate::dice::Dice;
use crate::plan::Profile;

fn run(profile: Profile, seeds: std::ops::Range<u64>) -> Tried {
    let mut sum = Tried::default();
    let mut wrong = Vec::new();
    for seed in seeds {
        let mistake = None;
        let options = SystemV {
            seed,
            profile,
            mistake,
        };
        match system_v(options) {
            Ok(tried) => sum.add(&tried),
            Err(why) => wrong.push((seed, why)),
        }
    }
    for (seed, why) in &wrong {
        println!(
            "seed {seed}, {profile:?}: {}",
            why.lines().last().unwrap_or_default()
        );
    }
    if let Some((seed, why)) = wrong.iter().min_by_key(|(_, why)| why.len()) {
        panic!("seed {seed}, {profile:?}: {why}");
    }
    sum
}

#[test]
fn a_cluster_is_like_one_host() {
    for (profile, seeds) in [
        (Profile::Calm, 0..30),
        (Profile::Mild, 1000..1060),
        (Profile::Harsh, 2000..2060),
    ] {
        let sum = run(profile, seeds);
        let each = [
            sum.calls,
            sum.waited,
            sum.woken,
            sum.withdrawn,
            sum.removed,
            sum.died,
            sum.nonsense,
            sum.gets,
            sum.made,
        ];
        assert!(
            each.iter().all(|count| *count > 100),
            "{profile:?}: {sum:?}"
        );
        assert!(sum.orphaned > 10 && sum.undone > 50, "{profile:?}: {sum:?}");
        assert!(sum.lent > 50 && sum.recalled > 50, "{profile:?}: {sum:?}");
        if profile != Profile::Calm {
            assert!(sum.crashed > 10 && sum.paused > 10, "{profile:?}: {sum:?}");
            assert!(sum.repeated > 100, "{profile:?}: {sum:?}");
        }
    }
}

#[test]
#[ignore = "for a look at some seeds"]
fn some_seeds() {
    let number = |name| std::env::var(name).map_or(1, |number| number.parse().unwrap());
    let profile = std::env::var("PROFILE").unwrap_or_default();
    let (seed, count) = (number("SEED"), number("SEEDS"));
    let sum = run(profile.parse().unwrap_or_default(), seed..seed + count);
    println!("{sum:?}");
}

#[test]
fn a_seed_is_the_same_run() {
    let options = SystemV {
        seed: 7,
        profile: Profile::Harsh,
        mistake: None,
    };
    let [one, other] = [(); 2].map(|()| format!("{:?}", system_v(options)));
    assert_eq!(one, other);
}

#[test]
fn planted_mistakes_are_found() {
    for mistake in Mistake::ALL {
        let found = (0..10).any(|seed| {
            let options = SystemV {
                seed,
                profile: Profile::Calm,
                mistake: Some(mistake),
            };
            system_v(options).is_err()
        });
        assert!(found, "{mistake:?} goes unnoticed");
    }
}

#[test]
fn nonsense_spares_whom_it_is_to_spare() {
    let mut dice = Dice::stream(1, "nonsense");
    let spared = pagemesh_wire::sysv::Id(1 << 24);
    let mut named = 0;
    for _ in 0..2000 {
        let text = format!("{:?}", nonsense(&mut dice, &[spared], 0));
        assert!(!text.contains(&format!("{spared:?}")), "{text}");
        named += usize::from(text.contains("Id("));
    }
    assert!(named > 500);
}
