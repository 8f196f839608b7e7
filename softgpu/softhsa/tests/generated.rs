//! Generated C programs give the same checksums on the host and on the software HSA runtime. The example
//! `differential` compares as many as one likes.

mod differential;

use std::path::Path;

use differential::{LEVELS, Source, compare_all};

/// Compares `count` programs for each of the compiler's levels.
fn all_agree(source: Source, count: u64) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("differential");
    for (number, level) in LEVELS.iter().enumerate() {
        let first = 1 + number as u64 * count;
        let (agreed, differing, skipped) = compare_all(source, first, count, 2, &folder, &[level]);
        assert!(differing.is_empty(), "{differing:#?}");
        // Some of csmith's programs run for ever or crash on the host, too.
        assert!(agreed >= count / 2, "too many were skipped: {skipped:#?}");
    }
}

#[test]
fn programs_of_csmith_agree() {
    all_agree(Source::Csmith, 6);
}

#[test]
fn programs_of_lanes_agree() {
    all_agree(Source::Lanes, 6);
}
