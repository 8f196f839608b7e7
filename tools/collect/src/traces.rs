//! Traces of all ranks in one file of Perfetto's format.
//!
//! Each rank writes its trace to a file of its machine, for as long as is asked for. Agents send the files in
//! pieces when they are asked. Who asks puts each on the time line of its own clock: a trace says when it
//! began by its machine's clock, and that is compared with the other one ([`crate::clocks`]), before and
//! after. Within a machine all processes have one clock.

use crate::clocks::{self, Clock};
use crate::local::Local;
use crate::wire::{Key, Who, read_json};
use hostcall::watch::{Request, TraceAsked, TraceBegun, TraceEnded, ask};
use hostcall_locks::Mutex;
use hostcall_remote::{Asked, Session};
use hostcall_trace::export::{ExportError, Joined};
use hostcall_trace::{Loss, Reader};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How what is asked for begins.
pub const WHAT: &str = "trace";
const ON: &str = "trace-on";
const OFF: &str = "trace-off";
const PIECE: &str = "trace-piece";

/// How long agents may take to begin or end traces, and to send a piece.
const LONGEST: Duration = Duration::from_secs(40);
const LONGEST_PIECE: Duration = Duration::from_secs(10);

/// How long names of agents are waited for.
const NAMES: Duration = Duration::from_millis(500);

/// A process ends its trace by itself, later, if nobody does.
const LATER: Duration = Duration::from_secs(30);

/// Longest trace, and the most of a rank's that is fetched; bytes of a piece.
pub const MOST_SECONDS: f64 = 3600.0;
const MOST_TRACE_BYTES: u64 = 1 << 30;
const PIECE_BYTES: u64 = 1 << 20;

/// Ranks of which answers are taken.
const MOST_RANKS: usize = 1 << 16;

/// Longest answer but for pieces.
const MOST_BYTES: usize = 64 << 10;

#[derive(Debug, Serialize, Deserialize)]
struct On {
    for_s: f64,
}

/// Which part of a rank's trace is asked for.
#[derive(Debug, Serialize, Deserialize)]
struct Piece {
    who: Who,
    offset: u64,
}

/// What became of a rank's trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Done {
    agent: String,
    who: Who,
    has_begun: bool,
    /// Its bytes, once it has ended.
    bytes: u64,
    /// What is wrong with it, or what it lacks.
    lacks: Option<String>,
}

/// The traces that ranks of this machine write.
#[derive(Debug, Default)]
pub struct Recorded {
    agent: String,
    files: Mutex<HashMap<Key, Recording>>,
}

/// A rank's trace, whose file has no name any more: it is gone with whoever has it open.
#[derive(Debug)]
struct Recording {
    who: Who,
    number: u64,
    file: File,
}

impl Recorded {
    /// Those of an agent.
    pub fn new(agent: &str) -> Self {
        Self { agent: agent.to_owned(), ..Self::default() }
    }

    /// Answers what is asked of traces.
    pub fn answer(&self, asked: &Asked, local: &Local) {
        let message = asked.message();
        let all = |done: Vec<Done>| {
            let written = done.iter().filter_map(|done| serde_json::to_vec(done).ok());
            written.for_each(|bytes| asked.answer(bytes));
        };
        match asked.what() {
            ON => {
                if let Ok(On { for_s }) = read_json(&message, MOST_BYTES) {
                    all(self.begin(local, for_s));
                }
            }
            OFF => all(self.end()),
            PIECE => {
                if let Ok(piece) = read_json::<Piece>(&message, MOST_BYTES)
                    && let Some(bytes) = self.piece(&piece)
                {
                    asked.answer(bytes);
                }
            }
            _ => {}
        }
    }

    /// Has all ranks begin a trace. What was recorded before is forgotten, if one begins.
    fn begin(&self, local: &Local, for_s: f64) -> Vec<Done> {
        let mut files = self.files.lock();
        let for_s = if for_s > 0.0 { for_s.min(MOST_SECONDS) } else { 0.0 } + LATER.as_secs_f64();
        let (mut begun, mut new) = (Vec::new(), HashMap::new());
        for who in local.ranks() {
            let lacks = match record_one(&who, for_s) {
                Ok((recording, refused)) => {
                    new.insert(who.key(), recording);
                    (!refused.is_empty()).then(|| refused.join("; "))
                }
                Err(error) => Some(error.to_string()),
            };
            let has_begun = new.contains_key(&who.key());
            begun.push(Done { agent: self.agent.clone(), who, has_begun, bytes: 0, lacks });
        }
        if !new.is_empty() {
            *files = new;
        }
        begun
    }

    fn end(&self) -> Vec<Done> {
        let end = |Recording { who, number, file }: &Recording| {
            let lacks = match ask::<TraceEnded>(who.pid, &Request::TraceOff { number: Some(*number) }) {
                Ok(ended) => ended.lost,
                // What it had written is there.
                Err(error) => Some(error.to_string()),
            };
            let bytes = file.metadata().map_or(0, |file| file.len());
            Done { agent: self.agent.clone(), who: who.clone(), has_begun: true, bytes, lacks }
        };
        self.files.lock().values().map(end).collect()
    }

    /// Returns a part of a rank's trace, which is forgotten with its last part.
    fn piece(&self, piece: &Piece) -> Option<Vec<u8>> {
        let mut files = self.files.lock();
        let key = piece.who.key();
        let file = &mut files.get_mut(&key)?.file;
        file.seek(SeekFrom::Start(piece.offset)).ok()?;
        let mut bytes = Vec::new();
        file.take(PIECE_BYTES).read_to_end(&mut bytes).ok()?;
        if (bytes.len() as u64) < PIECE_BYTES {
            files.remove(&key);
        }
        Some(bytes)
    }
}

/// Has a rank begin a trace. Returns what of it is not recorded too.
fn record_one(who: &Who, for_s: f64) -> Result<(Recording, Vec<String>), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("rank.trace");
    let asked = TraceAsked { file: path.clone(), for_s: Some(for_s), ..TraceAsked::default() };
    let TraceBegun { number, refused, .. } = ask(who.pid, &Request::TraceOn(asked))?;
    // The folder goes at once: nobody would remove it where this process is killed.
    match File::open(&path) {
        Ok(file) => Ok((Recording { who: who.clone(), number, file }, refused)),
        Err(error) => {
            let _ = ask::<TraceEnded>(who.pid, &Request::TraceOff { number: Some(number) });
            Err(format!("its trace cannot be read here: {error}").into())
        }
    }
}

/// Records all ranks that agents follow for a time, and writes one file. Returns what there is to say of it.
///
/// # Errors
/// When no rank records, or the file cannot be written.
pub fn record(session: &Session, to: &Path, time: Duration) -> Result<Vec<String>, Box<dyn Error>> {
    let agents = agents(session)?;
    let clocks = compare(session, &agents);
    if clocks.is_empty() {
        return Err("nobody answers: does a collector listen there, and do agents run with its --job?".into());
    }
    let begun = all(session, ON, &On { for_s: time.as_secs_f64() })?;
    let mut said: Vec<String> =
        begun.iter().filter_map(|done| Some(format!("{}: {}", done.who, done.lacks.as_ref()?))).collect();
    if !begun.iter().any(|done| done.has_begun) {
        return Err(if said.is_empty() { "no rank is there".into() } else { said.join("; ").into() });
    }
    std::thread::sleep(time);
    let mut ended = all(session, OFF, &())?;
    // What a clock has gone from the other one meanwhile is part of what it may be wrong.
    let later = compare(session, &agents);
    let clocks = clocks.into_iter().map(|(agent, clock)| {
        let clock = later.get(&agent).map_or(clock, |later| clock.and(*later));
        (agent, clock)
    });
    let clocks: BTreeMap<String, Clock> = clocks.collect();
    ended.sort_by_key(|done| (done.who.rank, done.who.key()));
    let folder = tempfile::tempdir()?;
    let mut files = Vec::new();
    for (at, done) in ended.iter().enumerate() {
        if let Some(lacks) = &done.lacks {
            said.push(format!("{}: {lacks}", done.who));
        }
        let path = folder.path().join(at.to_string());
        match fetch(session, done, &path) {
            Ok(()) => files.push((done, path)),
            Err(error) => said.push(format!("{}: its trace is not here: {error}", done.who)),
        }
    }
    said.extend(join(&files, &clocks, to)?);
    Ok(said)
}

/// Asks all agents.
fn all(session: &Session, what: &str, message: &impl Serialize) -> Result<Vec<Done>, Box<dyn Error>> {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let take = answers.clone();
    session.ask(None, what, serde_json::to_vec(message)?, LONGEST, move |bytes| {
        if let Ok(done) = read_json::<Done>(&bytes, MOST_BYTES) {
            let mut answers = take.lock();
            if answers.len() < MOST_RANKS {
                answers.push(done);
            }
        }
    })?;
    let answers = std::mem::take(&mut *answers.lock());
    Ok(answers)
}

/// Returns the names of all agents.
fn agents(session: &Session) -> Result<Vec<String>, Box<dyn Error>> {
    let names = Arc::new(Mutex::new(Vec::new()));
    let note = names.clone();
    let _watches = session.watch(move |name, is_there| {
        let mut names = note.lock();
        if is_there && !name.contains('/') && name.len() <= 128 && names.len() < MOST_RANKS {
            names.push(name.to_owned());
        }
    })?;
    std::thread::sleep(NAMES);
    Ok(std::mem::take(&mut *names.lock()))
}

/// Compares the clocks of agents.
fn compare(session: &Session, agents: &[String]) -> BTreeMap<String, Clock> {
    let compare = |agent: &String| Some((agent.clone(), clocks::compare(session, agent)?));
    agents.iter().filter_map(compare).collect()
}

fn fetch(session: &Session, done: &Done, to: &Path) -> Result<(), Box<dyn Error>> {
    if done.bytes > MOST_TRACE_BYTES {
        return Err(
            format!("it has {} bytes, of which {MOST_TRACE_BYTES} are fetched at most", done.bytes).into()
        );
    }
    let mut file = File::create(to)?;
    let mut offset = 0;
    while offset < done.bytes {
        let piece = Arc::new(Mutex::new(Vec::new()));
        let take = piece.clone();
        let asked = serde_json::to_vec(&Piece { who: done.who.clone(), offset })?;
        session.ask(Some(&done.agent), PIECE, asked, LONGEST_PIECE, move |bytes| *take.lock() = bytes)?;
        let piece = std::mem::take(&mut *piece.lock());
        if piece.is_empty() || piece.len() as u64 > PIECE_BYTES {
            return Err(format!("{offset} of its {} bytes came, and then no more", done.bytes).into());
        }
        file.write_all(&piece)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Writes one file, and says how the clocks were.
fn join(
    files: &[(&Done, PathBuf)],
    clocks: &BTreeMap<String, Clock>,
    to: &Path,
) -> Result<Vec<String>, Box<dyn Error>> {
    let mut said = Vec::new();
    let mut readers = Vec::new();
    for (done, path) in files {
        match Reader::new(BufReader::new(File::open(path)?)) {
            Ok(reader) => readers.push((*done, reader)),
            Err(error) => said.push(format!("{}: {error}", done.who)),
        }
    }
    let ahead_ns = |done: &Done| clocks.get(&done.agent).map_or(0, |clock| (clock.ahead_s * 1e9) as i64);
    let began = readers.iter().map(|(done, reader)| {
        reader.header().began_unix_ns.saturating_add_signed(ahead_ns(done).saturating_neg())
    });
    let began = began.min().ok_or("no trace came")?;
    let mut joined = Joined::new(File::create(to)?, began);
    let mut count = 0;
    for (done, reader) in &mut readers {
        let name = match done.who.rank {
            Some(rank) => format!("rank {rank} on {}", done.who.host),
            None => format!("process {} on {}", done.who.pid, done.who.host),
        };
        match joined.add(reader, &name, ahead_ns(done)) {
            Ok(exported) => {
                for Loss { how, count, what } in exported.losses.of_trace() {
                    said.push(format!("{}: {how}: {count} {what}", done.who));
                }
                count += 1;
            }
            Err(error @ ExportError::Write(_)) => return Err(error.into()),
            // What was read of it is there.
            Err(error) => said.push(format!("{}: {error}", done.who)),
        }
    }
    let hosts: BTreeMap<&str, Option<&Clock>> =
        files.iter().map(|(done, _)| (done.who.host.as_str(), clocks.get(&done.agent))).collect();
    for (host, clock) in hosts {
        said.push(match clock {
            Some(clock) => format!(
                "the clock of {host} is {:.3} ms ahead of this one, give or take {:.3} ms",
                clock.ahead_s * 1e3,
                clock.within_s * 1e3
            ),
            None => format!("the clock of {host} was not compared: its times are as that clock says them"),
        });
    }
    said.push(format!("{} has {count} ranks", to.display()));
    Ok(said)
}
