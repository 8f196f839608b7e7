//! What the waves of all ranks wait for, joined.

use crate::local::Local;
use crate::wire::read_json;
use hostcall::watch::{Explanation, Process, explain};
use hostcall_locks::Mutex;
use hostcall_remote::{Asked, Session};
use std::sync::Arc;
use std::time::Duration;

/// What is asked for.
pub const WHAT: &str = "waits";

/// Between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How long agents may take: as long as a rank that is stopped keeps its agent waiting, and a little.
const LONGEST: Duration = Duration::from_secs(4);

/// Longest answer of a rank, and of all.
const MOST_BYTES: usize = 4 << 20;
const MOST_BYTES_IN_ALL: usize = 512 << 20;

/// Answers with what each rank says.
pub fn answer(asked: &Asked, local: &Local) {
    for process in local.processes().unwrap_or_default() {
        if let Ok(bytes) = serde_json::to_vec(&process) {
            asked.answer(bytes);
        }
    }
}

/// What ranks have said, and what was refused of it.
#[derive(Debug, Default)]
pub struct Said {
    /// What each has said.
    pub processes: Vec<Process>,
    /// Answers that are none, or too long.
    pub refused: u64,
    bytes: usize,
}

/// Asks all ranks once. Those whose launcher has not named their job are of `job`.
///
/// # Errors
/// When the question cannot be asked.
pub fn look(session: &Session, job: &str) -> Result<Said, Box<dyn std::error::Error>> {
    let said = Arc::new(Mutex::new(Said::default()));
    let take = said.clone();
    session.ask(None, WHAT, Vec::new(), LONGEST, move |bytes| {
        let mut said = take.lock();
        said.bytes = said.bytes.saturating_add(bytes.len());
        match read_json::<Process>(&bytes, MOST_BYTES) {
            Ok(process) if said.bytes <= MOST_BYTES_IN_ALL => said.processes.push(process),
            _ => said.refused += 1,
        }
    })?;
    let mut said = std::mem::take(&mut *said.lock());
    for process in &mut said.processes {
        if !process.who.is_job_named && process.who.rank.is_some() {
            process.who.job = job.to_owned();
        }
    }
    let place = |process: &Process| (process.who.host.clone(), process.who.pid);
    said.processes.sort_by_key(place);
    said.processes.dedup_by_key(|process| place(process));
    Ok(said)
}

/// Asks all ranks twice. Returns what they said then, and who waits for whom.
///
/// # Errors
/// As for [`look`].
pub fn joined(session: &Session, job: &str) -> Result<(Said, Explanation), Box<dyn std::error::Error>> {
    let before = look(session, job)?;
    std::thread::sleep(BETWEEN_LOOKS);
    let now = look(session, job)?;
    let explained = explain(&before.processes, &now.processes, now.refused);
    Ok((now, explained))
}
