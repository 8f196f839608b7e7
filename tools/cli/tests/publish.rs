//! What is published can be: every package that users need, and nothing that needs what is not published.

mod common;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use std::collections::HashMap;

fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

#[test]
fn published_packages_need_only_published_ones() {
    let metadata = MetadataCommand::new().manifest_path(common::here("Cargo.toml")).no_deps().exec().unwrap();
    let packages: HashMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.name.as_str(), package)).collect();
    let mut problems = Vec::new();
    for package in packages.values().filter(|package| is_published(package)) {
        let mut problem = |text: String| problems.push(format!("{}: {text}", package.name));
        for (field, is_there) in [
            ("description", package.description.is_some()),
            ("license", package.license.is_some()),
            ("repository", package.repository.is_some()),
            ("rust-version", package.rust_version.is_some()),
        ] {
            if !is_there {
                problem(format!("it has no {field}"));
            }
        }
        for needed in package.dependencies.iter().filter(|needed| needed.path.is_some()) {
            let name = &needed.name;
            let has_version = needed.req != cargo_metadata::semver::VersionReq::STAR;
            match needed.kind {
                // With a version, packages that test each other could not be published one after the other.
                DependencyKind::Development if has_version => {
                    problem(format!("its tests need {name} by a version: name the path alone"));
                }
                DependencyKind::Development => {}
                _ if !packages.get(name.as_str()).is_some_and(|needed| is_published(needed)) => {
                    problem(format!("it needs {name}, which is not published"));
                }
                _ if !has_version => problem(format!("it needs {name} without a version")),
                _ => {}
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    for needed in ["hostcall", "hostcall-device", "hostcall-build", "hostcall-cli"] {
        assert!(is_published(packages[needed]), "{needed}");
    }
}
