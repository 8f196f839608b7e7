//! What processes wait for, as text.

use super::culprits::Explanation;
use super::state::Process;
use crate::device::metrics::sum;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Waits of a process that are told one by one; the others are counted.
const MOST_TOLD: usize = 16;

/// Returns lines that say what processes wait for, those of a job together, and because of whom. Machines are
/// named where there are several. The text may have control characters that a process has said.
pub fn report(processes: &[Process], explained: &Explanation) -> String {
    let hosts: BTreeSet<&str> = processes.iter().map(|process| process.who.host.as_str()).collect();
    let tells_hosts = hosts.len() > 1;
    let mut text = String::new();
    let mut jobs = BTreeMap::<&str, Vec<&Process>>::new();
    for process in processes {
        jobs.entry(&process.who.job).or_default().push(process);
    }
    for (job, mut processes) in jobs {
        processes.sort_by_key(|process| (process.who.rank, process.who.place()));
        let _ = writeln!(text, "job {job}: {}", count(processes.len() as u64, "process", "processes"));
        processes.into_iter().for_each(|process| say(process, tells_hosts, &mut text));
    }
    for culprit in &explained.culprits {
        let _ = match tells_hosts {
            true => writeln!(text, "culprit: {culprit:#}"),
            false => writeln!(text, "culprit: {culprit}"),
        };
    }
    for circle in &explained.circles {
        let around = circle.iter().chain(circle.first()).map(|member| match tells_hosts {
            true => format!("{member:#}"),
            false => member.to_string(),
        });
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
    text
}

fn count(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Says what a process waits for.
fn say(process: &Process, tells_hosts: bool, text: &mut String) {
    let who = &process.who;
    let rank = who.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
    let on = if tells_hosts { format!(" on {}", who.host) } else { String::new() };
    let _ = write!(text, "  {rank}process {}{on} ({}): ", who.pid, who.program);
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
    use super::super::DeviceState;
    use super::*;

    /// Numbers of other processes may be any.
    #[test]
    fn numbers_of_others_do_not_overflow() {
        let mut device = DeviceState { waits_untold: u64::MAX, ..DeviceState::default() };
        (device.metrics.launches_running, device.metrics.waiting_calls) = (u64::MAX, u64::MAX);
        let process = Process { devices: vec![device.clone(), device], ..Process::default() };
        let text = report(&[process], &Explanation::default());
        assert!(text.contains(&format!("{} waits have found no room to be told, ever", u64::MAX)), "{text}");
    }
}
