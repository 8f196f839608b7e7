//! `hostcall waits`: what the waves of running processes wait for, and because of whom.

use crate::{Outcome, complain, print, visible};
use hostcall::watch::{self, Process, Request, explain};
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
    let before = look(pids)?;
    if before.is_empty() {
        return Err("no process with a device of hostcall's runs here that can be looked at".into());
    }
    std::thread::sleep(BETWEEN_LOOKS);
    let processes = look(pids)?;
    let explained = explain(&before, &processes);
    if as_json {
        let object = json!({ "processes": processes, "explained": explained });
        return print(format_args!("{object}\n"));
    }
    let mut text = String::new();
    let mut jobs = BTreeMap::<(&str, &str), Vec<&Process>>::new();
    for process in &processes {
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
        let kinds = count(explained.untold, "kind of wait for a rank is", "kinds of waits for ranks are");
        let _ = writeln!(
            text,
            "{kinds} not told, as there are more than there is room for: who else is a culprit is not known"
        );
    }
    if explained.held_up > 0 {
        let waits = count(explained.held_up, "other wait for a rank follows", "other waits for ranks follow");
        let _ = writeln!(text, "{waits} from that");
    }
    print(format_args!("{}", visible(&text)))
}

/// Asks the processes, and those of their jobs. Others that do not answer are left out, and told where all are asked.
fn look(pids: &[u32]) -> Result<Vec<Process>, Box<dyn std::error::Error>> {
    let mut processes = Vec::<Process>::new();
    for (_, answer) in watch::ask_all(&[], &Request::State)? {
        match answer {
            Ok(process) => processes.push(process),
            Err(error) if pids.is_empty() => complain(error),
            Err(_) => {}
        }
    }
    for pid in pids {
        if !processes.iter().any(|process| process.who.pid == *pid) {
            processes.push(watch::state(*pid)?);
        }
    }
    if !pids.is_empty() {
        let asked = processes.iter().filter(|process| pids.contains(&process.who.pid));
        let jobs: BTreeSet<String> = asked.map(|process| process.who.job.clone()).collect();
        processes.retain(|process| jobs.contains(&process.who.job));
    }
    Ok(processes)
}

fn count(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Says what a process waits for.
fn say(process: &Process, text: &mut String) {
    let who = &process.who;
    let rank = who.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
    let _ = write!(text, "  {rank}process {} ({}): ", who.pid, who.program);
    let running: u64 = process.devices.iter().map(|device| device.metrics.launches_running).sum();
    let waiting: u64 = process.devices.iter().map(|device| device.metrics.waiting_calls).sum();
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
    let untold: u64 = process.devices.iter().map(|device| device.waits_untold).sum();
    if untold > 0 {
        let waits = count(untold, "wait has found", "waits have found");
        let _ = writeln!(text, "    {waits} no room to be told, ever");
    }
}
