use super::*;

/// Mutations of each target in `make test`; `cargo xtask fuzz` has more patience.
const MUTATIONS: u32 = 20_000;

fn fuzzed(target: Target) {
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        let file = target.corpus_file();
        let mut corpus = std::fs::read_to_string(&file).unwrap_or_default();
        let seeds = target.seeds();
        // What was found before stays.
        let missing: Vec<_> = seeds
            .lines()
            .filter(|seed| !corpus.lines().any(|line| line == *seed))
            .collect();
        for seed in missing {
            corpus.push_str(seed);
            corpus.push('\n');
        }
        std::fs::write(file, corpus).expect("writable");
    }
    let fuzz = Fuzz::new(target).unwrap_or_else(|why| panic!("{why}"));
    let count = fuzz.replay().unwrap_or_else(|breach| panic!("{breach}"));
    assert!(count > 0, "{target} has no corpus");
    fuzz.mutate(0, MUTATIONS)
        .unwrap_or_else(|breach| panic!("{target}: {breach}"));
}

#[test]
fn hostile_datagrams_are_understood_or_refused() {
    fuzzed(Target::PeerDecode);
}

#[test]
fn hostile_packets_are_understood_or_refused() {
    fuzzed(Target::LocalDecode);
}

#[test]
fn a_node_stands_hostile_members_and_programs() {
    fuzzed(Target::NodeInputs);
}

#[test]
fn what_members_and_programs_say_is_heeded() {
    let fuzz = Fuzz::new(Target::NodeInputs).expect("a corpus");
    let heeded = |input: &&Vec<u8>| fuzz.victims.suffer(input) == Ok(true);
    let count = fuzz.corpus.iter().filter(heeded).count();
    println!("{count} of {} inputs change their node", fuzz.corpus.len());
    assert!(count * 3 > fuzz.corpus.len(), "{count}");
}

#[test]
fn hostile_diffs_are_refused_or_mean_one_thing() {
    fuzzed(Target::DiffApply);
}

#[test]
fn hostile_pages_are_refused_or_whole() {
    fuzzed(Target::PageUnpack);
}

#[test]
fn hostile_multicast_batches_are_refused_or_mean_one_thing() {
    fuzzed(Target::MulticastBatchDecode);
}

#[test]
fn hostile_snapshots_are_refused_or_whole() {
    fuzzed(Target::SnapshotRead);
}

#[test]
fn damaged_states_are_refused_or_whole() {
    fuzzed(Target::StateRead);
}

#[test]
fn each_version_of_a_state_is_read_and_some_damage_is_not() {
    let fuzz = Fuzz::new(Target::StateRead).expect("a corpus");
    let read = |input: &Vec<u8>| fuzz.states.suffer(input) == Ok(true);
    assert!(
        fuzz.corpus
            .iter()
            .filter(|input| input.len() == 1)
            .all(read)
    );
    assert!(!fuzz.corpus.iter().all(read));
}

#[test]
fn hostile_packets_are_refused_or_mean_one_thing() {
    fuzzed(Target::PathPackets);
}

#[test]
fn nonsense_in_scripts_is_refused() {
    fuzzed(Target::Scripts);
}

#[test]
fn targets_have_names() {
    for target in Target::ALL {
        assert_eq!(target.to_string().parse(), Ok(target));
    }
    assert!("nothing".parse::<Target>().is_err());
}
