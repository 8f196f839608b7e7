//! The folder's crates stand alone: they depend on each other and on packages of others.

use std::path::Path;
use std::process::Command;

#[test]
fn no_crate_of_the_folder_depends_on_one_outside() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in a folder");
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let manifest = entry.expect("it is read").path().join("Cargo.toml");
        if !manifest.exists() {
            continue;
        }
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--edges", "all", "--target", "all", "--prefix", "none", "--format", "{p}"]);
        let output =
            tree.arg("--offline").arg("--manifest-path").arg(&manifest).output().expect("cargo runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Packages with a folder are no registry's.
        let ours = text.lines().filter_map(|line| line.split_once(" (/"));
        let outside: Vec<_> =
            ours.filter(|(_, at)| !format!("/{at}").starts_with(&*folder.to_string_lossy())).collect();
        assert!(outside.is_empty() && !text.is_empty(), "{}: {outside:?}", manifest.display());
    }
}
