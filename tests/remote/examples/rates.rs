//! How quickly another process answers, beside the same handler in this one, in one run:
//!
//! `cargo run --release -p hostcall-remote-tests --example rates [WAVES [ROUNDS]]`

use hostcall::hostcall_device::{CallError, Lane, kernel, service};
use hostcall::{Device, Gather, Gathered, Grid, LaunchKernel};
use hostcall_remote::message::{Answer, Asked, Head, Question, VERSION};
use hostcall_remote::{Session, export_gathered, import};
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zenoh::Wait;

#[service]
trait Store {
    fn next(key: u64) -> u64;
}

struct Next;

impl StoreHandler for Next {
    fn next(&self, key: u64) -> Result<u64, CallError> {
        Ok(key + 1)
    }
}

impl StoreGatheredHandler for Next {
    async fn next(&self, calls: Gathered<u64, u64>) {
        let found: Vec<_> = calls.arguments().iter().map(|key| Ok(key + 1)).collect();
        calls.answer_all(found);
    }
}

#[kernel]
fn asks(lane: &Lane, rounds: u32) {
    for round in 0..rounds {
        let key = u64::from(round) << 32 | lane.global_id() as u64;
        assert_eq!(Store::next(key), Ok(key + 1));
    }
}

/// What threads of this process and of the answerer are parts of a call's processor time, by the beginnings of their names.
const PARTS: [(&str, &[&str]); 4] = [
    ("device", &["softdev"]),
    ("consumers", &["hostcall-0", "hostcall-1"]),
    ("drivers", &["hostcall-async"]),
    ("links", &["app-", "acc-", "net-", "tx-", "rx-"]),
];

/// The processor time that threads have taken so far, in us: of each part, of this process's others, and of the answerer.
fn processor_times(answerer: u32) -> [f64; PARTS.len() + 2] {
    let mut times = [0.0; PARTS.len() + 2];
    for process in [std::process::id(), answerer] {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            // Its first number is the time in ns.
            let time = read("schedstat").split(' ').next().and_then(|time| time.parse::<f64>().ok());
            let is_of = |(_, names): &(_, &[&str])| names.iter().any(|name| read("comm").starts_with(name));
            let part = PARTS.iter().position(is_of).unwrap_or(PARTS.len());
            times[if process == answerer { PARTS.len() + 1 } else { part }] += time.unwrap_or(0.0) / 1000.0;
        }
    }
    times
}

/// Runs a kernel of `waves` waves once without being timed and then so often; returns the median of its calls a second.
fn rate(device: &Device, waves: u32, lanes: u32, rounds: u32) -> Result<f64, Box<dyn Error>> {
    let stream = device.stream()?;
    let mut rates = Vec::new();
    for time in 0..6 {
        let begun = Instant::now();
        asks.launch(&stream, Grid::new(waves, lanes), (if time == 0 { 1 } else { rounds },))?;
        stream.synchronize()?;
        if time > 0 {
            rates.push(f64::from(waves * lanes * rounds) / begun.elapsed().as_secs_f64());
        }
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

/// The median time of a question with so many calls, without any device. `process` is another number each time: an answerer
/// drops what it had before.
fn question(address: &str, process: u64, calls: u32, rounds: u32) -> Result<Duration, Box<dyn Error>> {
    let mut config = zenoh::Config::default();
    let endpoint = format!("[{address:?}]");
    for (name, value) in
        [("mode", "\"peer\""), ("scouting/multicast/enabled", "false"), ("connect/endpoints", &endpoint)]
    {
        config.insert_json5(name, value).map_err(|error| error.to_string())?;
    }
    let session = zenoh::open(config).wait().map_err(|error| error.to_string())?;
    std::thread::sleep(Duration::from_millis(500));
    let head = Head { version: VERSION, width: 1, count: calls, batch: 0, process };
    let mut times = Vec::new();
    for batch in 0..u64::from(rounds) {
        let question = Question {
            head: Head { batch, ..head },
            schema: Store::METHODS[0].schema(),
            calls: vec![Asked { remaining: None, lane: 0 }; calls as usize],
            words: (batch..batch + u64::from(calls)).collect(),
        };
        let begun = Instant::now();
        let get = session.get("hostcall/default/store/Store/next").payload(question.encode());
        let replies = get.wait().map_err(|error| error.to_string())?;
        let reply = replies.recv().map_err(|_| "nobody answers")?;
        let sample = reply.into_result().map_err(|error| error.to_string())?;
        let answer = Answer::decode(&sample.payload().to_bytes()).map_err(|_| "no answer")?;
        times.push(begun.elapsed());
        assert_eq!((answer.words.len(), answer.words[0]), (calls as usize, batch + 1));
    }
    times.sort();
    Ok(times[times.len() / 2])
}

/// The process that answers, which ends with its standard input.
struct Answerer(Child);

impl Answerer {
    fn start(address: &str) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(address).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok(Self(child))
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let Some(address) = arguments.first().filter(|argument| argument.starts_with("tcp/")) {
        let session = Session::builder().listen(address).open()?;
        let _export = export_gathered(&session, "store", Store::serve_gathered(Next))?;
        println!("ready");
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    let number = |at: usize, or| arguments.get(at).map_or(Ok(or), |text| text.parse::<u32>());
    let (waves, rounds) = (number(0, 32)?, number(1, 100)?);
    let address = format!("tcp/{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?);
    let answerer = Answerer::start(&address)?;

    let inline = Device::builder("cpu").inline_service(Store::serve(Next)).open()?;
    let gathered = Store::serve_gathered(Next);
    let gathered = Device::builder("cpu").gathered_service(gathered, Gather::default()).open()?;
    let session = Session::builder().connect(&address).open()?;
    let open = |bounds| -> Result<Device, Box<dyn Error>> {
        let store = import(&session, "store", Store::METHODS)?;
        Ok(Device::builder("cpu").gathered_service(store, bounds).open()?)
    };
    let (remote, single) = (open(Gather::default())?, open(Gather::default().calls(1).batches(256))?);

    println!("{waves} waves of 32 lanes, {rounds} calls each; medians of 5 runs");
    let mut of_inline = 0.0;
    let mut tell = |what: &str, device: &Device| -> Result<f64, Box<dyn Error>> {
        let (before, begun) = (session.counts(), processor_times(answerer.0.id()));
        let of_this = rate(device, waves, 32, rounds)?;
        let ended = processor_times(answerer.0.id());
        let took = |part: usize| (ended[part] - begun[part]) / f64::from(waves * 32 * (5 * rounds + 1));
        if of_inline == 0.0 {
            of_inline = of_this;
        }
        let (after, of_inline) = (session.counts(), of_this / of_inline);
        let (calls, questions) = (after.calls - before.calls, after.questions - before.questions);
        let each = calls as f64 / questions.max(1) as f64;
        let all: f64 = (0..PARTS.len() + 2).map(took).sum();
        print!(
            "{what:<28} {of_this:8.0} calls/s, {of_inline:.2} x inline; {each:4.0} calls a message; us a call {all:.2}:"
        );
        let names = PARTS.iter().map(|(name, _)| *name).chain(["others", "answerer"]);
        names.enumerate().for_each(|(part, name)| print!(" {name} {:.2}", took(part)));
        println!();
        Ok(of_this)
    };
    tell("local, inline", &inline)?;
    tell("local, gathered", &gathered)?;
    let of_remote = tell("remote, one message at once", &remote)?;
    for batches in [2, 4, 8] {
        let device = open(Gather::default().batches(batches))?;
        tell(&format!("remote, {batches} messages at once"), &device)?;
    }
    tell("local, inline again", &inline)?;
    for calls in [1, 32, 256, 512, 1024] {
        let bare = question(&address, 1000 + u64::from(calls), calls, 500)?.as_secs_f64() * 1e6;
        println!(
            "a question of {calls:4} calls, alone {bare:8.1} us, {:.2} us a call",
            bare / f64::from(calls)
        );
    }
    for (lanes, what) in [(1, "a lone call"), (32, "a wave of 32 calls")] {
        let time = |device| -> Result<f64, Box<dyn Error>> {
            Ok(1e6 * f64::from(lanes) / rate(device, 1, lanes, 1000)?)
        };
        let (local, remote) = (time(&gathered)?, time(&remote)?);
        let bare = question(&address, lanes.into(), 1, 2000)?.as_secs_f64() * 1e6;
        println!(
            "{what}: local {local:.1} us, question {bare:.1} us, remote {remote:.1} us = {:.2} x their sum",
            remote / (local + bare)
        );
    }
    let of_single = rate(&single, waves * 32, 1, rounds.div_ceil(20))?;
    println!(
        "remote, a message a call     {of_single:8.0} calls/s, of which gathered is {:.1} x",
        of_remote / of_single
    );
    Ok(())
}
