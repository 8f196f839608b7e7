//! Runs the fuzz targets' corpora, and inputs made at random, as an ordinary test.
#![cfg(not(loom))]

use proptest::prelude::*;

#[path = "fuzz/host_words.rs"]
mod host_words;
#[path = "fuzz/raw_channel.rs"]
mod raw_channel;

fn run_corpus(target: &str, run: impl Fn(&[u8])) {
    let folder = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    for input in std::fs::read_dir(folder).unwrap() {
        let path = input.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(path).unwrap());
    }
}

#[test]
fn the_corpus_passes() {
    run_corpus("host_words", host_words::run);
}

#[test]
fn the_corpus_of_raw_channels_passes() {
    run_corpus("raw_channel", raw_channel::run);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_inputs_pass(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        host_words::run(&data);
    }

    #[test]
    fn random_steps_of_raw_channels_pass(data in prop::collection::vec(any::<u8>(), 0..600)) {
        raw_channel::run(&data);
    }

    /// No step is a hostile device's: all that was written is read.
    #[test]
    fn waves_that_keep_the_rules_lose_nothing_uncounted(
        sizes in any::<u8>(),
        steps in prop::collection::vec((0..15u8, 0..16u8, any::<u8>()), 0..400),
    ) {
        let steps = steps.into_iter().flat_map(|(action, more, number)| {
            // Only these two take a number.
            let number = [7, 10].contains(&action).then_some(number);
            std::iter::once(more << 4 | action).chain(number)
        });
        raw_channel::run(&[sizes, 0].into_iter().chain(steps).collect::<Vec<_>>());
    }
}
