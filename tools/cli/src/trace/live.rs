//! `hostcall trace on` and `off`: trace points of programs that run.

use super::LONGEST_FINISH;
use crate::{Outcome, complain};
use hostcall::watch::{Request, TraceAsked, TraceBegun, TraceEnded, WatchError, ask};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Begins traces, and waits for their end if they have a time.
///
/// # Errors
/// A sentence, when no process is traced.
pub fn on(
    pids: &[u32],
    to: &Path,
    points: Vec<String>,
    kernels: Vec<String>,
    launch: Option<String>,
    time: Option<Duration>,
) -> Outcome {
    // The process has a folder of its own.
    let to = std::path::absolute(to).map_err(|error| format!("cannot name {}: {error}", to.display()))?;
    let mut begun = Vec::new();
    for pid in pids {
        let file = if pids.len() > 1 { of_process(&to, *pid) } else { to.clone() };
        // A process ends the trace by itself, later, if this one is gone.
        let for_s = time.map(|time| (time + LONGEST_FINISH).as_secs_f64());
        let (points, kernels, launch) = (points.clone(), kernels.clone(), launch.clone());
        let asked = TraceAsked { file: file.clone(), points, kernels, launch, for_s };
        match ask::<TraceBegun>(*pid, &Request::TraceOn(asked)) {
            Ok(TraceBegun { number, devices, refused }) => {
                eprintln!("process {pid}: {} to {}", devices.join(", "), file.display());
                refused.into_iter().for_each(complain);
                begun.push((*pid, Some(number)));
            }
            Err(error) => complain(error),
        }
    }
    let code = i32::from(begun.len() < pids.len());
    match time {
        Some(time) if !begun.is_empty() => {
            std::thread::sleep(time);
            Ok(code.max(end(&begun)))
        }
        _ => Ok(code),
    }
}

/// Ends whichever traces there are.
///
/// # Errors
/// None but those that are to be told as a sentence.
pub fn off(pids: &[u32]) -> Outcome {
    Ok(end(&pids.iter().map(|pid| (*pid, None)).collect::<Vec<_>>()))
}

/// Ends traces of processes: those alone that have a number. Returns the exit code.
fn end(traces: &[(u32, Option<u64>)]) -> i32 {
    let mut code = 0;
    for (pid, number) in traces {
        match ask(*pid, &Request::TraceOff { number: *number }) {
            Ok(TraceEnded { file, lost: None }) => eprintln!("process {pid}: {} is whole", file.display()),
            Ok(TraceEnded { file, lost: Some(lost) }) => {
                complain(format!("process {pid}: {}: {lost}", file.display()));
                code = 1;
            }
            Err(WatchError::NotThere(_)) => {
                complain(format!(
                    "process {pid} has ended, or lets nobody look in: its trace has what was written by then"
                ));
                code = 1;
            }
            Err(error) => {
                complain(error);
                code = 1;
            }
        }
    }
    code
}

/// The file of one of several processes.
fn of_process(to: &Path, pid: u32) -> PathBuf {
    let mut name = to.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{pid}"));
    if let Some(ending) = to.extension() {
        name.push(".");
        name.push(ending);
    }
    to.with_file_name(name)
}
