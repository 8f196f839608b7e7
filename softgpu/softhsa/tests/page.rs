//! The page of instructions says of each what the interpreter does with it. Which of them tests execute needs all the
//! tests; the example `instructions` checks that after them.

use std::collections::BTreeMap;

use hostcall_softhsa::exec::coverage;

#[test]
fn the_page_says_what_is_exact_and_what_is_missing() {
    let page = include_str!("../instructions.md");
    let mut said = BTreeMap::new();
    for section in page.split("\n## ").skip(1) {
        let (exactness, _) = section.split_once(',').expect("a title");
        for mnemonic in section.split('`').skip(1).step_by(2) {
            assert_eq!(said.insert(mnemonic, exactness.to_owned()), None, "{mnemonic} stands there twice");
        }
    }
    for (mnemonic, (exactness, _)) in coverage::report() {
        let said = said.remove(mnemonic);
        assert_eq!(
            said,
            Some(format!("{exactness:?}")),
            "{mnemonic}: the example `instructions` makes the page"
        );
    }
    assert!(said.is_empty(), "instructions that there are not: {said:?}");
}
