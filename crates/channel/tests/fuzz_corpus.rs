//! Runs the fuzz target's corpus, and inputs made at random, as an ordinary test.
#![cfg(not(loom))]

use proptest::prelude::*;

#[path = "fuzz/host_words.rs"]
mod host_words;

#[test]
fn the_corpus_passes() {
    let corpus =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/host_words")).unwrap();
    for input in corpus {
        let path = input.unwrap().path();
        println!("{}", path.display());
        host_words::run(&std::fs::read(path).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_inputs_pass(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        host_words::run(&data);
    }
}
