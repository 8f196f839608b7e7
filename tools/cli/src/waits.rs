//! `hostcall waits`: what the waves of running processes wait for, and because of whom.

use crate::{Outcome, complain, print, sum, visible};
use hostcall::watch::{self, Process, Request, WatchError, explain};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// Between two looks. A wait that the second finds too stands still: what it waits for was not on its way.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Waits of a process that are told one by one; the others are counted.
const MOST_TOLD: usize = 16;

/// Looks at these processes and at all of their jobs, or at all processes, and says what they wait for.
pub fn run(pids: &[u32], as_json: bool) -> Outcome {
    let before = told(look(pids)?, pids)?;
    if before.said.is_empty() {
        return Err("no process with a device of hostcall's runs here that can be looked at".into());
    }
    std::thread::sleep(BETWEEN_LOOKS);
    let now = told(look(pids)?, pids)?;
    let (processes, explained) = (&now.said, explain(&before.said, &now.said, now.left_out));
    if as_json {
        let object = json!({ "processes": processes, "explained": explained });
        return print(format_args!("{object}\n"));
    }
    let mut text = String::new();
    let mut jobs = BTreeMap::<(&str, &str), Vec<&Process>>::new();
    for process in processes {
        jobs.entry((&process.who.host, &process.who.job)).or_default().push(process);
    }
    for ((_, job), mut processes) in jobs {
        processes.sort_by_key(|process| (process.who.rank, process.who.pid));
        let _ = writeln!(text, "job {job}: {}", count(processes.len() as u64, "process", "processes"));
        processes.into_iter().for_each(|process| say(process, &mut text));
    }
    for culprit in &explained.culprits {
        let _ = writeln!(text, "culprit: {culprit}");
    }
    for circle in &explained.circles {
        let around = circle.iter().chain(circle.first()).map(ToString::to_string);
        let _ = writeln!(text, "circle: {}", around.collect::<Vec<_>>().join(" waits for "));
    }
    if explained.untold > 0 {
        let waits = count(explained.untold, "wait, or kind of them, is", "waits, or kinds of them, are");
        let _ = writeln!(
            text,
            "{waits} not told, as there are more than there is room for: who else is a culprit is not known"
        );
    }
    if explained.left_out > 0 {
        let processes =
            count(explained.left_out, "more process runs here that was", "more processes run here that were");
        let _ = writeln!(text, "{processes} not asked: who else is a culprit, or is not there, is not known");
    }
    if explained.held_up > 0 {
        let waits = count(explained.held_up, "other wait for a rank follows", "other waits for ranks follow");
        let _ = writeln!(text, "{waits} from that");
    }
    print(format_args!("{}", visible(&text)))
}

/// What processes say.
pub struct Looked {
    /// What each says: of the processes that were named, and of all of their jobs.
    pub said: Vec<Process>,
    /// Why others say nothing: those alone that were named, where some were.
    pub failed: Vec<(u32, WatchError)>,
    /// Processes that were not asked, since there are too many.
    pub left_out: u64,
}

/// Asks the processes, and those of their jobs; or all, where none is named.
///
/// # Errors
/// When the system does not say which there are.
pub fn look(pids: &[u32]) -> std::io::Result<Looked> {
    let watch::Answers { answers, left_out, .. } = watch::ask_all(&[], &Request::State)?;
    let (mut said, mut failed) = (Vec::<Process>::new(), Vec::new());
    let mut take = |pid, answer| match answer {
        Ok(process) => said.push(process),
        Err(error) => failed.push((pid, error)),
    };
    let mut asked = BTreeSet::new();
    for (pid, answer) in answers {
        asked.insert(pid);
        take(pid, answer);
    }
    for pid in pids.iter().filter(|pid| !asked.contains(pid)) {
        take(*pid, watch::state(*pid));
    }
    if !pids.is_empty() {
        let named = said.iter().filter(|process| pids.contains(&process.who.pid));
        let jobs: BTreeSet<String> = named.map(|process| process.who.job.clone()).collect();
        said.retain(|process| jobs.contains(&process.who.job));
        failed.retain(|(pid, _)| pids.contains(pid));
    }
    Ok(Looked { said, failed, left_out })
}

/// Tells why processes say nothing.
///
/// # Errors
/// The reason, of one that was named.
fn told(mut looked: Looked, pids: &[u32]) -> Result<Looked, WatchError> {
    for (_, error) in looked.failed.drain(..) {
        if !pids.is_empty() {
            return Err(error);
        }
        complain(error);
    }
    Ok(looked)
}

fn count(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Says what a process waits for.
fn say(process: &Process, text: &mut String) {
    let who = &process.who;
    let rank = who.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
    let _ = write!(text, "  {rank}process {} ({}): ", who.pid, who.program);
    let running = sum(process.devices.iter().map(|device| device.metrics.launches_running));
    let waiting = sum(process.devices.iter().map(|device| device.metrics.waiting_calls));
    let _ = match (running, waiting) {
        (0, 0) => writeln!(text, "no launch runs"),
        (_, 0) => writeln!(text, "{}, and nothing waits", count(running, "launch runs", "launches run")),
        _ => writeln!(text, "{}", count(waiting, "wait", "waits")),
    };
    let mut told = 0;
    for wait in process.devices.iter().flat_map(|device| &device.waiting).take(MOST_TOLD) {
        let _ = writeln!(text, "    {}", wait.text);
        told += 1;
    }
    if waiting > told {
        let _ = writeln!(text, "    and {} more", waiting - told);
    }
    for thread in &process.threads {
        let (does, operation, waited_s) = (thread.does.join(", "), &thread.waits_in, thread.waited_s);
        let _ =
            writeln!(text, "    a thread that runs {does}: has waited in {operation} for {waited_s:.1} s");
    }
    let untold = sum(process.devices.iter().map(|device| device.waits_untold));
    if untold > 0 {
        let waits = count(untold, "wait has found", "waits have found");
        let _ = writeln!(text, "    {waits} no room to be told, ever");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall::watch::DeviceState;

    /// Numbers of other processes may be any.
    #[test]
    fn numbers_of_others_do_not_overflow() {
        let mut device = DeviceState::default();
        device.waits_untold = u64::MAX;
        (device.metrics.launches_running, device.metrics.waiting_calls) = (u64::MAX, u64::MAX);
        let mut process = Process::default();
        process.devices = vec![device.clone(), device];
        let mut text = String::new();
        say(&process, &mut text);
        assert!(text.contains(&format!("{} waits have found no room to be told, ever", u64::MAX)), "{text}");
    }
}
