//! `hostcall waits`: ranks that wait for each other, in processes of their own.

mod common;

use common::{acting, hostcall, stderr, stdout};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Processes that wait, and end with this.
struct Job(Vec<Child>);

impl Job {
    /// Starts a rank for each of these, which waits for a signal of this rank and with this number.
    fn start(name: &str, waits: &[(u32, u64)]) -> Self {
        let rank = |(rank, (peer, number)): (usize, &(u32, u64))| {
            let mut command = acting("", &["signal", &peer.to_string(), &number.to_string()]);
            command.env("HOSTCALL_JOB", format!("{name}-{}", std::process::id()));
            command.env("HOSTCALL_RANK", rank.to_string()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        Self(waits.iter().enumerate().map(rank).collect())
    }

    fn pid(&self, rank: usize) -> String {
        self.0[rank].id().to_string()
    }

    /// Looks until what is printed has this in it. Returns all of it.
    fn look_for(&self, options: &[&str], text: &str) -> String {
        let begin = Instant::now();
        loop {
            let output = hostcall([&["waits", &self.pid(0)], options].concat()).output().unwrap();
            let said = stdout(&output);
            if output.status.success() && said.contains(text) {
                return said;
            }
            assert!(begin.elapsed() < Duration::from_secs(120), "no {text:?}: {said}{}", stderr(&output));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn a_rank_that_left_out_a_signal_is_named() {
    let mut job = Job::start("left-out", &[(1, 5), (0, 6), (0, 6)]);
    // Where the machine is too busy for the ranks to poll, an early look may say less.
    let text = job.look_for(&[], "it is past that: it waits for number 6 of rank 0\n");
    let [first, second] = [job.pid(0), job.pid(1)];
    let culprit = format!(
        "culprit: rank 1 (process {second}): rank 0 (process {first}) has waited for its `signal` number 5 for "
    );
    assert!(text.contains(&culprit), "{text}");
    assert!(text.contains(&format!("  rank 0, process {first} (")), "{text}");
    let wave = ", wave 0: has waited for the flag `signal`, number 5 of rank 1 for ";
    assert!(text.contains(" of main on cpu, workgroup (0, 0, 0)") && text.contains(wave), "{text}");
    let object: serde_json::Value = serde_json::from_str(&job.look_for(&["--json"], "past")).unwrap();
    assert_eq!(object["explained"]["culprits"][0]["of"]["rank"], 1, "{object}");
    assert_eq!(object["processes"][0]["devices"][0]["waiting"][0]["lanes"], 4, "{object}");
    // The program itself says it, too.
    assert!(Command::new("kill").args(["-QUIT", &first]).status().unwrap().success());
    let mut said = Vec::new();
    let mut stderr = job.0[0].stderr.take().unwrap();
    while !String::from_utf8_lossy(&said).contains(wave) {
        let mut piece = [0; 1024];
        let count = stderr.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&piece[..count]);
    }
    assert!(String::from_utf8_lossy(&said).contains("the program goes on: 1 wave waits for another"));
}

#[test]
fn ranks_that_hold_each_other_up_are_a_circle() {
    let job = Job::start("circle", &[(1, 5), (0, 5)]);
    let [first, second] = [job.pid(0), job.pid(1)];
    let text = job.look_for(&[], "circle: ");
    let circle = format!(
        "circle: rank 0 (process {first}) waits for rank 1 (process {second}) waits for rank 0 (process {first})\n"
    );
    assert!(text.contains(&circle) && !text.contains("culprit"), "{text}");
}

/// `hostcall serve`, until this is dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The page shows the processes that are named, and asks their whole jobs who waits for whom.
#[test]
fn a_page_of_one_rank_blames_nobody_of_its_job() {
    let job = Job::start("page", &[(1, 5), (0, 5)]);
    let [first, second] = [job.pid(0), job.pid(1)];
    job.look_for(&[], "circle: ");
    let mut serve = hostcall(["serve", &first, "--port", "0"]);
    let mut serving = Serving(serve.stdout(Stdio::piped()).env_remove("HOSTCALL_TOKEN").spawn().unwrap());
    let mut address = String::new();
    BufReader::new(serving.0.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    let (host, token) = address.trim().strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
    let begin = Instant::now();
    let state = loop {
        let mut connection = TcpStream::connect(host).unwrap();
        let asks = format!("GET /api/state?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        connection.write_all(asks.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let state: serde_json::Value =
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(state["culprits"], serde_json::json!([]), "{state}");
        if state["circles"] != serde_json::json!([]) {
            break state;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "no circle: {state}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let circle = state["circles"][0].as_str().unwrap();
    assert!(circle.contains(&first) && circle.contains(&second), "{circle}");
    let shown = state["processes"].as_array().unwrap();
    assert_eq!((shown.len(), shown[0]["pid"].to_string()), (1, first), "{state}");
}

#[test]
fn who_is_not_there_is_told_in_a_sentence() {
    let own = std::process::id().to_string();
    let output = hostcall(["waits", &own]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let sentence =
        format!("hostcall: process {own} has no device of hostcall's open that can be looked at: ");
    assert!(
        stderr(&output).starts_with(&sentence) && stderr(&output).lines().count() == 1,
        "{}",
        stderr(&output)
    );
    assert_eq!(hostcall(["waits", "nobody"]).output().unwrap().status.code(), Some(2));
}
