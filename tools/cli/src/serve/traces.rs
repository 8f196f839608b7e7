//! Traces of processes that the page asks for, where `--allow-traces` lets it: recorded for a while, in Perfetto's format.

use hostcall::watch::{Request as Ask, TraceAsked, TraceBegun, TraceEnded, ask};
use hostcall_locks::Mutex;
use hostcall_metrics::http::Reply;
use hostcall_trace::Reader;
use hostcall_trace::export::{ExportError, Format, Table, export};
use std::io::Seek;
use std::os::fd::AsRawFd;
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
        let Some(_busy) = self.busy.try_lock() else {
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
    // It has no name, so that nothing is left of it however this process ends. The other process opens it as a file of this one.
    let mut file =
        tempfile::tempfile().map_err(|error| format!("cannot make a file for the trace: {error}"))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let for_s = Some((time + LATER).as_secs_f64());
    let asked = TraceAsked { file: path.into(), for_s, ..TraceAsked::default() };
    let begun: TraceBegun = ask(pid, &Ask::TraceOn(asked)).map_err(|error| error.to_string())?;
    std::thread::sleep(time);
    let off = Ask::TraceOff { number: Some(begun.number) };
    let ended: TraceEnded = ask(pid, &off).map_err(|error| error.to_string())?;
    let cannot = |error: std::io::Error| format!("cannot read the trace of process {pid}: {error}");
    let bytes = file.metadata().map_err(cannot)?.len();
    if bytes > MOST_BYTES {
        let megabytes = bytes >> 20;
        return Err(format!(
            "the trace has {megabytes} MiB, and 256 are the most here: record fewer points with `hostcall trace on {pid} \
             --points NAME --for {}`, and `hostcall trace export` it",
            time.as_secs_f64()
        ));
    }
    file.rewind().map_err(cannot)?;
    let mut trace = Vec::new();
    let mut reader = Reader::new(file).map_err(|error| error.to_string())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that records panics: the next trace is recorded all the same.
    #[test]
    fn a_panic_keeps_nobody_out() {
        let traces = Traces::new(Vec::new());
        std::thread::scope(|scope| {
            let records = scope.spawn(|| {
                let _busy = traces.busy.try_lock().expect("nobody records");
                panic!("a test's");
            });
            assert!(records.join().is_err());
        });
        assert!(traces.busy.try_lock().is_some());
    }
}
