//! Traces of processes that the page asks for, where `--allow-traces` lets it: recorded for a while, in Perfetto's format.

use super::random;
use hostcall::watch::{Request as Ask, TraceAsked, TraceBegun, TraceEnded, ask};
use hostcall_metrics::http::Reply;
use hostcall_trace::Reader;
use hostcall_trace::export::{ExportError, Format, Table, export};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// Seconds that a trace may be asked for.
const SECONDS: std::ops::RangeInclusive<f64> = 0.05..=60.0;

/// A process ends the trace by itself so much later, if nobody tells it to.
const LATER: Duration = Duration::from_secs(10);

/// Largest trace that is exported: both sides of the export are held in memory.
const MOST_BYTES: u64 = 256 << 20;

/// Records traces, one at a time.
pub struct Traces {
    /// Processes that may be traced; all of this user's without one.
    pids: Vec<u32>,
    busy: Mutex<()>,
}

/// A folder of this user's alone, which is removed with what is in it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new() -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("hostcall-serve-{}", random()?));
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }
}

impl Traces {
    pub fn new(pids: Vec<u32>) -> Self {
        Self { pids, busy: Mutex::default() }
    }

    /// Answers `?pid=…&seconds=…`.
    pub fn answer(&self, query: &str) -> Reply {
        let value = |name| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let pid = value("pid").and_then(|pid| pid.parse::<u32>().ok());
        let pid = pid.filter(|pid| self.pids.is_empty() || self.pids.contains(pid));
        let seconds = value("seconds").and_then(|seconds| seconds.parse::<f64>().ok());
        let (Some(pid), Some(seconds)) = (pid, seconds.filter(|seconds| SECONDS.contains(seconds))) else {
            let sentence = "say which of the processes to trace and for how long: /api/trace?pid=PID&seconds=N, of up to 60";
            return Reply::refused("400 Bad Request", sentence);
        };
        let Ok(_busy) = self.busy.try_lock() else {
            return Reply::refused(
                "409 Conflict",
                "another trace is being recorded: ask again once it has ended",
            );
        };
        match record(pid, Duration::from_secs_f64(seconds)) {
            Ok((trace, lost)) => {
                let reply = Reply::new("application/octet-stream", trace);
                // A header is one line of plain letters.
                let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { ' ' };
                match lost.is_empty() {
                    true => reply,
                    false => reply.header("X-Trace-Lost", lost.chars().map(plain).collect::<String>()),
                }
            }
            Err(sentence) => Reply::refused("502 Bad Gateway", &sentence),
        }
    }
}

/// Records trace points of a process. Returns them in Perfetto's format, and what is not there, in a sentence.
fn record(pid: u32, time: Duration) -> Result<(Vec<u8>, String), String> {
    let folder = Folder::new().map_err(|error| format!("cannot make a folder for the trace: {error}"))?;
    let file = folder.0.join("points.trace");
    let for_s = Some((time + LATER).as_secs_f64());
    let asked = TraceAsked { file: file.clone(), for_s, ..TraceAsked::default() };
    let begun: TraceBegun = ask(pid, &Ask::TraceOn(asked)).map_err(|error| error.to_string())?;
    std::thread::sleep(time);
    let ended: TraceEnded = ask(pid, &Ask::TraceOff).map_err(|error| error.to_string())?;
    let cannot = |error: std::io::Error| format!("cannot read the trace of process {pid}: {error}");
    let read = File::open(&file).map_err(cannot)?;
    let bytes = read.metadata().map_err(cannot)?.len();
    if bytes > MOST_BYTES {
        let megabytes = bytes >> 20;
        return Err(format!(
            "the trace has {megabytes} MiB, and 256 are the most here: record fewer points with `hostcall trace on {pid} \
             --points NAME --for {}`, and `hostcall trace export` it",
            time.as_secs_f64()
        ));
    }
    let mut trace = Vec::new();
    let mut reader = Reader::new(read).map_err(|error| error.to_string())?;
    match export(&mut reader, Table::First, Format::Perfetto, &mut trace, |_| ()) {
        Ok(_) => {}
        Err(ExportError::OnlyStreams) => {
            return Err(format!("no kernel of process {pid} has met a trace point"));
        }
        Err(error) => return Err(error.to_string()),
    }
    let lost: Vec<String> = begun.refused.into_iter().chain(ended.lost).collect();
    Ok((trace, lost.join("; ")))
}
