//! A process that answers, for the tests of this crate and those with kernels (`tests/remote`): the test's own program, of which it
//! runs the ignored test `answerer`.

use hostcall_remote::{RemoteError, Session};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(120);

/// In the environment: what an answering process is to do, and where.
const ROLE: &str = "HOSTCALL_REMOTE_ROLE";
pub const ADDRESS: &str = "HOSTCALL_REMOTE_ADDRESS";

/// Is the answering process, if it is one: answers with what `export` exports for its role until its parent ends, whose end of the
/// pipe it reads.
pub fn answer<E>(export: impl FnOnce(&Session, &str) -> Result<E, RemoteError>) {
    let Ok(role) = std::env::var(ROLE) else { return };
    std::panic::set_hook(Box::new(|_| ()));
    let mut session = Session::builder().listen(std::env::var(ADDRESS).unwrap());
    if role == "denies" {
        session = session.setting(
            "access_control",
            r#"{ enabled: true, default_permission: "deny", rules: [], subjects: [], policies: [] }"#,
        );
    }
    let session = session.open().unwrap();
    let _export = export(&session, &role).unwrap();
    println!("READY");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Tells how long something took, where that is asked for.
pub fn tell(what: &str, took: Duration) {
    if std::env::var("HOSTCALL_REMOTE_TIMES").is_ok() {
        println!("{what}: {took:.2?}");
    }
}

/// A process that answers, or asks. It is killed when this is dropped.
pub struct Answerer {
    pub process: Child,
    says: BufReader<ChildStdout>,
}

impl Answerer {
    pub fn start(role: &str, address: &str) -> Self {
        Self::run("answerer", role, address)
    }

    /// Runs one of the ignored tests of this program.
    pub fn run(test: &str, role: &str, address: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(ADDRESS, address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(process.stdout.take().unwrap());
        let mut answerer = Self { process, says };
        answerer.wait_for("READY");
        answerer
    }

    /// Waits until the process says this.
    pub fn wait_for(&mut self, what: &str) {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "the process ended before it said {what}");
        }
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address of this machine that nobody listens at.
pub fn address() -> String {
    let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("tcp/{place}")
}
