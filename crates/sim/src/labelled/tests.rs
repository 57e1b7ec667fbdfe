use super::{Labelled, Planted, Sighted, labelled};
use crate::plan::Profile;

fn run(profile: Profile, seeds: std::ops::Range<u64>) -> Sighted {
    let mut sum = Sighted::default();
    let mut wrong = Vec::new();
    for seed in seeds {
        let planted = None;
        let options = Labelled {
            seed,
            profile,
            planted,
        };
        match labelled(options) {
            Ok(sighted) => {
                sum.loads += sighted.loads;
                sum.merged += sighted.merged;
                sum.refreshed += sighted.refreshed;
                sum.collected += sighted.collected;
                sum.compared += sighted.compared;
            }
            Err(why) => wrong.push((seed, why)),
        }
    }
    for (seed, why) in &wrong {
        let last = why.lines().last().unwrap_or_default();
        println!("seed {seed}, {profile:?}: {last}");
    }
    let shortest = wrong.iter().min_by_key(|(_, why)| why.len());
    if let Some((seed, why)) = shortest {
        panic!("seed {seed}, {profile:?}: {why}");
    }
    sum
}

#[test]
fn labelled_programs_see_what_some_order_gives() {
    for (profile, seeds) in [
        (Profile::Calm, 0..100),
        (Profile::Mild, 1000..1150),
        (Profile::Harsh, 2000..2150),
    ] {
        let sum = run(profile, seeds);
        assert!(sum.loads > 1000 && sum.merged > 100, "{profile:?}: {sum:?}");
        assert!(
            sum.collected > 10 && sum.compared > 100,
            "{profile:?}: {sum:?}"
        );
    }
}

#[test]
fn planted_mistakes_are_found() {
    for planted in [
        Planted::MergeForgetsLast,
        Planted::MergeBackwards,
        Planted::TwinNotMade,
    ] {
        let found = (0..60).any(|seed| {
            let options = Labelled {
                seed,
                profile: Profile::Calm,
                planted: Some(planted),
            };
            labelled(options).is_err()
        });
        assert!(found, "{planted:?} goes unnoticed");
    }
}
