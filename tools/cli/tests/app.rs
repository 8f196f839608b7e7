//! What `hostcall new --app` makes: a host program with its kernels.

mod common;

use common::{here, hostcall, stderr, stdout};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A name that no other package here has.
const NAME: &str = "till-app";

struct App {
    folder: PathBuf,
    _parent: tempfile::TempDir,
}

impl App {
    fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let output = hostcall(["new", "--app", NAME]).current_dir(&parent).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let folder = parent.path().join(NAME);
        // The versions that are here already.
        fs::copy(here("../../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        Self { folder, _parent: parent }
    }

    /// Runs cargo in the app's folder, with the targets to build its kernels for.
    fn cargo(&self, targets: &str, arguments: &[&str]) -> Output {
        self.cargo_to(Stdio::piped(), targets, arguments)
    }

    /// Does so with this standard output.
    fn cargo_to(&self, stdout: impl Into<Stdio>, targets: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO"));
        command.stdout(stdout);
        // Where these tests were built, and as packages of others were, which are there then.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        command.env("CARGO_TARGET_DIR", target).env("CARGO_PROFILE_DEV_DEBUG", "false");
        command.env("HOSTCALL_TARGETS", targets).args(arguments).current_dir(&self.folder).output().unwrap()
    }
}

#[test]
fn a_new_app_runs_on_the_software_device_and_has_images_for_gpus() {
    let app = App::new();
    let output = app.cargo("none", &["fmt", "--all", "--check"]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let output = app.cargo("none", &["run", "--quiet"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "lane 3: item 4 has no price\ncpu: [30, 250, 42, 0], 322 in all\n");
    assert_eq!(stderr(&output), "");
    // What takes no output is told in a sentence, of the kernels' lines as of the program's own.
    let output = app.cargo_to(File::create("/dev/full").unwrap(), "none", &["run", "--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.starts_with(&format!("{NAME}: ")) && text.contains("No space left on device"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    // Another device's name is all that it takes to run there.
    let output = app.cargo("none", &["run", "--quiet", "--", "cuda:7"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.starts_with(&format!("{NAME}: ")) && text.contains("cuda:7"), "{text}");

    // The GPU in software is no part of a program that does not ask for it.
    let output = app.cargo("none", &["run", "--quiet", "--", "gfx942"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("(`--features hostcall/gfx942`)") && text.lines().count() == 1, "{text}");
    let tree = app.cargo("none", &["tree", "--edges", "normal"]);
    assert!(tree.status.success() && !stdout(&tree).contains("softhsa"), "{}", stdout(&tree));

    let output = app.cargo("sm_1", &["build"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("unknown target `sm_1`"), "{}", stderr(&output));

    let output = app.cargo("cuda", &["build", "--message-format=json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let messages = stdout(&output);
    let program = messages.lines().find_map(|line| line.split_once(r#""executable":""#)?.1.split('"').next());
    let bytes = fs::read(program.expect("the program's path")).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has(".target sm_70") && has("hostcall_kernel_cost"));

    // What the kernels' compiler says is cargo's error.
    fs::write(app.folder.join("kernels/src/lib.rs"), "#![no_std]\nfn broken(").unwrap();
    let output = app.cargo("cuda", &["build"]);
    let text = stderr(&output);
    assert!(!output.status.success() && text.contains("does not compile for sm_70"), "{text}");
}
