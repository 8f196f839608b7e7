//! Generated C programs give the same checksums on the host and on the software HSA runtime. The example
//! `differential` compares as many as one likes.

mod differential;

use std::path::Path;

use differential::{LEVELS, Source, compare_all};

fn all_agree(source: Source, count: u64) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("differential");
    let (agreed, differing, skipped) = compare_all(source, 1, count, 2, &folder, &LEVELS);
    assert!(differing.is_empty(), "{differing:#?}");
    assert!(agreed >= count * 3 / 4, "too many were skipped: {skipped:#?}");
}

#[test]
fn programs_of_csmith_agree() {
    all_agree(Source::Csmith, 24);
}

#[test]
fn programs_of_lanes_agree() {
    all_agree(Source::Lanes, 24);
}
