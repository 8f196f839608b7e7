//! `hostcall waits`: what the waves of running processes wait for, and because of whom.

use crate::{Outcome, complain, print, visible};
use hostcall::watch::{self, Process, Request, WatchError, explain, report};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two looks. A wait that the second finds too stands still: what it waits for was not on its way.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

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
    print(format_args!("{}", visible(&report(processes, &explained))))
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
