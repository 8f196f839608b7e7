//! What the lanes did is in the database.

use inventory::name_of;
use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Output};

fn inventory(database: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inventory")).arg(database).args(options).output().unwrap()
}

/// Keys, names and amounts, by key.
fn rows(database: &Path) -> Vec<(u64, String, u64)> {
    let database = Connection::open(database).unwrap();
    let mut all = database.prepare("SELECT key, name, amount FROM items ORDER BY key").unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn each_item_is_added_once_and_found_later() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.sqlite");

    let first = stdout(&inventory(&file, &["--lanes", "300", "--amount", "10", "--transfer", "0"]));
    assert_eq!(first.lines().filter(|line| line.starts_with("added 10 of item ")).count(), 225);
    // Every lane but those that found the item or came late has added one.
    assert!(first.contains("300 lanes: found ") && first.contains(", added 225, "), "{first}");
    assert!(first.contains("225 lanes: moved 224, too few 0, no such item 1\n"), "{first}");
    let expected: Vec<_> = (1..=225).map(|key| (key, name_of(key).to_owned(), 10)).collect();
    assert_eq!(rows(&file), expected);

    let second = stdout(&inventory(&file, &["--lanes", "300", "--transfer", "0"]));
    assert!(second.contains("300 lanes: found 300, added 0, late 0\n"), "{second}");
    assert!(second.contains("found 10 of item 3, Schräubchen\n"), "{second}");
    assert_eq!(rows(&file), expected);
}

#[test]
fn stock_is_moved_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.sqlite");
    for _ in 0..4 {
        stdout(&inventory(&file, &["--lanes", "100", "--amount", "5", "--transfer", "3"]));
        let rows = rows(&file);
        assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), 75 * 5);
    }
    // The first item only gives: 3 once, and 2 are too few for another time.
    assert_eq!(rows(&file)[0].2, 2);
    let last = stdout(&inventory(&file, &["--lanes", "100", "--transfer", "1000"]));
    assert!(last.contains("75 lanes: moved 0, too few 75, no such item 0\n"), "{last}");
}

#[test]
fn more_of_an_item_than_there_may_be_is_said_to_be_possible() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.sqlite");
    let most = i64::MAX.to_string();
    let output = inventory(&file, &["--lanes", "4", "--amount", &most, "--transfer", "5"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("moved more to an item than the 9223372036854775807 that"), "{stderr}");
    assert_eq!(rows(&file).iter().map(|row| row.2).max(), Some(i64::MAX as u64));
}

#[test]
fn no_database_is_one_sentence() {
    let output = inventory(Path::new("/nowhere/store.sqlite"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("inventory: cannot open /nowhere/store.sqlite: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1);
}
