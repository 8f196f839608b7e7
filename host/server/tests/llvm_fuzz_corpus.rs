//! Runs the corpus of the fuzz target `llvm_server`, and inputs made at random, as an ordinary test.

#[path = "fuzz/llvm_server.rs"]
mod llvm_server;

#[test]
fn the_corpus_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/llvm_server");
    let mut inputs = 0;
    for input in std::fs::read_dir(corpus).unwrap() {
        let path = input.unwrap().path();
        println!("{}", path.display());
        llvm_server::run(&std::fs::read(path).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "there is a corpus");
}

#[test]
fn random_inputs_pass() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for length in 0..100 {
        let data: Vec<u8> = (0..length * 10)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        llvm_server::run(&data);
    }
}
