//! Programs that run beside a test, and what they say.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(120);

/// A program, which is killed when this is dropped.
pub struct Program {
    process: Mutex<Child>,
    readers: Mutex<Vec<JoinHandle<()>>>,
    said: Arc<(Mutex<String>, Condvar)>,
}

impl Program {
    pub fn start(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut process = Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::<(Mutex<String>, Condvar)>::default();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(process.stdout.take().unwrap()), Box::new(process.stderr.take().unwrap())];
        let read = |mut stream: Box<dyn Read + Send>| {
            let said = said.clone();
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    said.0.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
                    said.1.notify_all();
                }
            })
        };
        let readers = Mutex::new(streams.into_iter().map(read).collect());
        Self { process: Mutex::new(process), readers, said }
    }

    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().id()
    }

    /// Returns what it has said so far on both streams.
    pub fn said(&self) -> String {
        self.said.0.lock().unwrap().clone()
    }

    /// Waits until it has said this. Returns all that it has said.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        let lacks = |said: &mut String| !said.contains(text);
        let (said, timed) = self.said.1.wait_timeout_while(self.said.0.lock().unwrap(), LONG, lacks).unwrap();
        assert!(!timed.timed_out(), "no {text:?} in: {}", &said[said.len().saturating_sub(4000)..]);
        said.clone()
    }

    /// Writes into its standard input.
    pub fn write(&self, text: &str) {
        self.process.lock().unwrap().stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.pid().to_string()]).status().unwrap().success());
    }

    /// Returns whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.process.lock().unwrap().try_wait().unwrap().is_some()
    }

    /// Waits for its end, and for all that it has said. Returns its exit code.
    pub fn code(&self) -> Option<i32> {
        let code = self.process.lock().unwrap().wait().unwrap().code();
        self.readers.lock().unwrap().drain(..).for_each(|reader| reader.join().unwrap());
        code
    }

    /// Closes its standard input, and waits for its end.
    pub fn end(&self) -> Option<i32> {
        drop(self.process.lock().unwrap().stdin.take());
        self.code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap();
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Starts this test's program again as a rank, which is its test `rank`.
pub fn start(job: &str, rank: u32, does: &str) -> Program {
    let own = std::env::current_exe().unwrap();
    let arguments = ["--exact", "rank", "--ignored", "--nocapture", "--test-threads=1"];
    let environment = [("RANK_DOES", does), ("HOSTCALL_RANK", &rank.to_string()), ("HOSTCALL_JOB", job)];
    Program::start(&own, &arguments, &environment)
}

/// Starts `hostcall collect`.
pub fn collect(arguments: &[&str]) -> Program {
    Program::start(env!("CARGO_BIN_EXE_hostcall-collect").as_ref(), arguments, &[])
}

/// Does this again until it gives something.
pub fn until<T>(mut tries: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = tries() {
            return found;
        }
        assert!(begun.elapsed() < LONG, "it never comes");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A job's name that no other test has.
pub fn job(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// An address of this machine that nobody listens at.
pub fn address() -> String {
    format!("tcp/{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}
