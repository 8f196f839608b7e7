//! The ranks of this machine: found by their sockets, and followed by a thread each.
//!
//! A thread that passes on what its rank says may wait for who takes it. The rank does not: what its socket
//! does not take meanwhile it leaves out, and says how much.

use crate::complain;
use crate::wire::{Item, What, Who};
use hostcall::watch::{self, Failure, Following, News, Process, Request, WatchError};
use hostcall_locks::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Between two looks for new processes.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Between two summaries of a rank.
const SUM_UP: Duration = Duration::from_secs(1);

/// From when on a rank that says nothing is said to be silent: it beats five times in a second.
const SILENT: Duration = Duration::from_secs(1);

/// Ranks that are followed, each by a thread.
const MOST_FOLLOWED: usize = 256;

/// Which processes are meant, and how their machine is named.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// These alone; all of the user's without one.
    pub pids: Vec<u32>,
    /// Those of this job alone.
    pub job: Option<String>,
    /// The machine's name; as the processes say it without one.
    pub host: Option<String>,
}

/// Who is told what happens: `false` ends that.
pub trait Told: Fn(Item) -> bool + Clone + Send + 'static {}
impl<T: Fn(Item) -> bool + Clone + Send + 'static> Told for T {}

/// Returns a function that sends what happens, and waits for room.
pub fn sends<T: Send + 'static>(
    to: SyncSender<T>,
    make: impl Fn(Item) -> T + Clone + Send + 'static,
) -> impl Told {
    move |item| to.send(make(item)).is_ok()
}

/// A rank that is followed, and for how long it has said nothing, where that is long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The rank.
    pub who: Who,
    /// In seconds.
    pub silent_s: Option<f64>,
}

/// The ranks that are followed.
#[derive(Clone, Default)]
pub struct Local {
    scope: Arc<Scope>,
    /// By their numbers. Those without a name have not said it yet.
    followed: Arc<Mutex<HashMap<u32, Option<Who>>>>,
    /// When silent ones were heard last.
    silent: Arc<Mutex<HashMap<u32, Instant>>>,
    /// Processes that are not followed, as long as they are there.
    refused: Arc<Mutex<HashSet<u32>>>,
    /// Processes of which it was said that they are not followed, since too many are. They are when there is room.
    left_out: Arc<Mutex<HashSet<u32>>>,
}

impl Local {
    /// Follows nobody yet.
    pub fn new(scope: Scope) -> Self {
        Self { scope: Arc::new(scope), ..Self::default() }
    }

    /// Looks for ranks and follows them, for ever.
    pub fn follow(&self, told: &impl Told) {
        loop {
            match watch::processes() {
                Ok(pids) => self.look(&pids, told),
                Err(error) => complain(format!("the system does not say which processes there are: {error}")),
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn look(&self, pids: &[u32], told: &impl Told) {
        for those in [&self.refused, &self.left_out] {
            those.lock().retain(|pid| pids.contains(pid));
        }
        for pid in pids.iter().copied() {
            let is_meant = self.scope.pids.is_empty() || self.scope.pids.contains(&pid);
            if !is_meant || self.refused.lock().contains(&pid) || self.followed.lock().contains_key(&pid) {
                continue;
            }
            if self.followed.lock().len() >= MOST_FOLLOWED {
                if self.left_out.lock().insert(pid) {
                    complain(format!(
                        "process {pid} is not followed before another one ends: {MOST_FOLLOWED} are followed \
                         here at a time"
                    ));
                }
                continue;
            }
            let following = match watch::follow(pid) {
                Ok(following) => following,
                Err(WatchError::NotThere(_)) => continue,
                Err(WatchError::OtherUser(_)) => {
                    self.refused.lock().insert(pid);
                    continue;
                }
                Err(WatchError::Silent(_)) => continue,
                Err(error) => {
                    complain(error.to_string());
                    self.refused.lock().insert(pid);
                    continue;
                }
            };
            self.followed.lock().insert(pid, None);
            let (local, told) = (self.clone(), told.clone());
            let run = move || Rank::new(local, pid, following, told).run();
            if let Err(error) = std::thread::Builder::new().name("hostcall-follow".into()).spawn(run) {
                complain(format!("process {pid} is not followed: the system starts no thread: {error}"));
                self.followed.lock().remove(&pid);
                self.refused.lock().insert(pid);
            }
        }
    }

    /// Asks the ranks what they wait for. Those that do not answer are not there, and the others come when
    /// they have.
    ///
    /// # Errors
    /// When the system fails.
    pub fn processes(&self) -> std::io::Result<Vec<Process>> {
        let pids: Vec<u32> = {
            let followed = self.followed.lock();
            followed.iter().filter(|(_, who)| who.is_some()).map(|(pid, _)| *pid).collect()
        };
        if pids.is_empty() {
            return Ok(Vec::new());
        }
        let answers = watch::ask_all::<Process>(&pids, &Request::State)?;
        let mut processes: Vec<Process> =
            answers.answers.into_iter().filter_map(|(_, answer)| answer.ok()).collect();
        for process in &mut processes {
            if let Some(host) = &self.scope.host {
                process.who.host.clone_from(host);
            }
        }
        Ok(processes)
    }

    /// Returns the ranks, and who of them is silent.
    pub fn seen(&self) -> Vec<Seen> {
        let silent = self.silent.lock().clone();
        let seen = |who: Who| {
            let silent_s = silent.get(&who.pid).map(|heard| heard.elapsed().as_secs_f64());
            Seen { who, silent_s }
        };
        self.ranks().into_iter().map(seen).collect()
    }

    /// Returns the ranks.
    pub fn ranks(&self) -> Vec<Who> {
        self.followed.lock().values().flatten().cloned().collect()
    }
}

/// A rank that is followed.
struct Rank<T: Told> {
    local: Local,
    pid: u32,
    following: Following,
    told: T,
    who: Option<Who>,
    /// Bytes that it has printed, with those that were left out.
    position: u64,
    failure: Option<Failure>,
    failures: u64,
    is_open: bool,
    heard: Instant,
    summed_up: Instant,
    is_silent: bool,
}

impl<T: Told> Rank<T> {
    fn new(local: Local, pid: u32, following: Following, told: T) -> Self {
        let now = Instant::now();
        Self {
            local,
            pid,
            following,
            told,
            who: None,
            position: 0,
            failure: None,
            failures: 0,
            is_open: true,
            heard: now,
            summed_up: now,
            is_silent: false,
        }
    }

    fn run(mut self) {
        match self.follow() {
            Ok(()) => _ = self.tell(What::Ended { was_open: self.is_open }),
            // Too many follow it now: it is tried again.
            Err(Some(WatchError::Refused { .. })) => std::thread::sleep(SUM_UP),
            Err(why) => {
                self.local.refused.lock().insert(self.pid);
                why.into_iter().for_each(|why| complain(why.to_string()));
            }
        }
        self.local.silent.lock().remove(&self.pid);
        self.local.followed.lock().remove(&self.pid);
    }

    /// Passes on what it says, until it ends.
    ///
    /// # Errors
    /// When it is not followed any more, and why, if somebody wants to know that.
    fn follow(&mut self) -> Result<(), Option<WatchError>> {
        loop {
            let until = (self.summed_up + SUM_UP).max(Instant::now() + Duration::from_millis(1));
            match self.following.next(until) {
                Ok(Some(news)) => {
                    self.heard = Instant::now();
                    if std::mem::take(&mut self.is_silent) {
                        self.local.silent.lock().remove(&self.pid);
                        self.sum_up().ok_or(None)?;
                    }
                    self.take(news).ok_or(None)?;
                }
                Ok(None) => return Ok(()),
                Err(WatchError::Silent(_)) => {}
                Err(error) => return Err(Some(error)),
            }
            self.is_silent = self.heard.elapsed() >= SILENT;
            if self.is_silent {
                self.local.silent.lock().insert(self.pid, self.heard);
            }
            if self.summed_up.elapsed() >= SUM_UP {
                self.sum_up().ok_or(None)?;
            }
        }
    }

    fn sum_up(&mut self) -> Option<()> {
        self.summed_up = Instant::now();
        let silent_s = self.is_silent.then(|| self.heard.elapsed().as_secs_f64());
        let (position, failure, failures) = (self.position, self.failure.clone(), self.failures);
        self.tell(What::So { position, failure, failures, silent_s })
    }

    fn take(&mut self, news: News) -> Option<()> {
        match news {
            News::Begins { who, failure } => {
                let Scope { job, host, .. } = &*self.local.scope;
                if job.as_ref().is_some_and(|job| *job != who.job) {
                    return None;
                }
                let who = Who::new(&who, host.as_ref().unwrap_or(&who.host));
                self.who = Some(who.clone());
                self.failures = failure.as_ref().map_or(0, |failure| failure.number);
                self.failure = failure;
                self.sum_up()?;
                // Whoever asks learns of it later than who is told.
                self.local.followed.lock().insert(self.pid, Some(who));
                Some(())
            }
            News::Text { sink, text, missed } => {
                let position = self.position.saturating_add(missed);
                self.position = position.saturating_add(text.len() as u64);
                match text.is_empty() {
                    true => Some(()),
                    false => self.tell(What::Text { sink, position, text }),
                }
            }
            News::Failed(failure) => {
                self.failures = self.failures.max(failure.number);
                self.failure.get_or_insert_with(|| failure.clone());
                self.tell(What::Failed { failure })
            }
            News::Devices { open } => {
                self.is_open = open;
                Some(())
            }
            _ => Some(()),
        }
    }

    fn tell(&self, what: What) -> Option<()> {
        let Some(who) = self.who.clone() else { return Some(()) };
        (self.told)(Item { who, what }).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_was_left_out_is_followed_when_there_is_room() {
        let _device = hostcall::Device::builder("cpu").open().unwrap();
        let (local, own) = (Local::default(), std::process::id());
        local.followed.lock().extend((0..MOST_FOLLOWED as u32).map(|at| (u32::MAX - at, None)));
        local.look(&[own], &|_| true);
        assert!(!local.followed.lock().contains_key(&own) && local.left_out.lock().contains(&own));
        local.followed.lock().remove(&u32::MAX);
        while local.ranks().is_empty() {
            local.look(&[own], &|_| true);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(local.ranks()[0].pid, own);
    }
}
