//! The collector: hears agents, or the ranks of its own machine, and prints.
//!
//! Threads of the link put what comes into a queue, which is bounded in messages and in bytes; what does not
//! fit is dropped. One thread reads the queue and prints. So whoever does not read what is printed makes
//! messages be dropped, and holds up no agent.

use crate::job::{HERE, Job};
use crate::local::{Local, sends};
use crate::wire::{self, Item, MOST_BYTES};
use crate::{Outcome, clocks, complain};
use hostcall_locks::Mutex;
use hostcall_remote::Session;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Messages and bytes of them that wait to be read.
const MOST_QUEUED: usize = 4096;
const MOST_QUEUED_BYTES: usize = 64 << 20;

/// How often it looks what time alone has come for.
const TICK: Duration = Duration::from_millis(100);

/// Clocks that are compared at a time, and after how long one that did not answer is asked again.
const COMPARE: usize = 8;
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Agents that are known at a time.
const MOST_AGENTS: usize = 1 << 16;

/// What comes.
enum Event {
    Here(Item),
    Message(Vec<u8>),
    /// A name is announced, or is gone.
    Named(String, bool),
    /// An agent has answered, or has not.
    Clock(String, Option<clocks::Clock>),
}

/// When the collector ends.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// When all ranks that it has seen have ended.
    pub with_ranks: bool,
    /// The user wants it.
    pub interrupted: Arc<AtomicBool>,
}

/// Collects on this machine alone.
///
/// # Errors
/// When the system starts no thread, or the standard output fails.
pub fn run_here(local: &Local, ends: &Ends) -> Outcome {
    let (told, events) = sync_channel(MOST_QUEUED);
    let local = local.clone();
    let follow = move || local.follow(&sends(told, Event::Here));
    std::thread::Builder::new().name("hostcall-find".into()).spawn(follow)?;
    let job = Job::default();
    Collects { job, queued: Arc::default(), agents: HashMap::new(), compares: None }.run(&events, ends)
}

/// Collects from agents.
///
/// # Errors
/// When the link refuses, or the standard output fails.
pub fn run(session: &Session, ends: &Ends) -> Outcome {
    let (to, events) = sync_channel(MOST_QUEUED);
    let queued = Arc::<AtomicUsize>::default();
    let _hears = {
        let (to, queued) = (to.clone(), queued.clone());
        session.hear(move |bytes| {
            // Longer ones are refused without being kept.
            let bytes = if bytes.len() > MOST_BYTES { Vec::new() } else { bytes };
            let count = bytes.len();
            if queued.fetch_add(count, Ordering::SeqCst) > MOST_QUEUED_BYTES
                || to.try_send(Event::Message(bytes)).is_err()
            {
                queued.fetch_sub(count, Ordering::SeqCst);
            }
        })?
    };
    // Few, and each counts: they wait for room, on a thread of their own.
    let (name, names) = std::sync::mpsc::channel();
    let _watches = session.watch(move |of, is_there| {
        if of.len() <= 128 {
            let _ = name.send((of.to_owned(), is_there));
        }
    })?;
    let compares = compare_clocks(session, &to)?;
    let pass_on =
        move || names.into_iter().for_each(|(name, is_there)| _ = to.send(Event::Named(name, is_there)));
    std::thread::Builder::new().name("hostcall-names".into()).spawn(pass_on)?;
    let job = Job::default();
    Collects { job, queued, agents: HashMap::new(), compares: Some(compares) }.run(&events, ends)
}

struct Collects {
    job: Job,
    /// Bytes of messages that wait.
    queued: Arc<AtomicUsize>,
    /// Agents that are there, and since when those wait that are to be asked for their clocks again: an agent
    /// tells nothing before it was asked.
    agents: HashMap<String, Option<Instant>>,
    compares: Option<SyncSender<String>>,
}

impl Collects {
    fn run(&mut self, events: &Receiver<Event>, ends: &Ends) -> Outcome {
        let mut ticked = Instant::now();
        loop {
            match events.recv_timeout(TICK) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.job.tick();
                self.ask_again();
            }
            if !self.print()? {
                return Ok(0);
            }
            let is_over = ends.with_ranks && self.job.is_over();
            if is_over || ends.interrupted.load(Ordering::SeqCst) {
                self.job.summary().into_iter().for_each(complain);
                return Ok(i32::from(self.job.has_failed()));
            }
        }
    }

    /// Prints what there is. Returns `false` where nobody reads the standard output any more.
    fn print(&mut self) -> io::Result<bool> {
        let (printed, said) = self.job.output();
        let mut out = io::stdout().lock();
        let written = out.write_all(printed.as_bytes()).and_then(|()| out.flush());
        said.into_iter().for_each(complain);
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| true),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Here(item) => self.job.take(HERE, item),
            Event::Message(bytes) => {
                self.queued.fetch_sub(bytes.len(), Ordering::SeqCst);
                match wire::read(&bytes) {
                    Ok(message) => {
                        for item in message.items {
                            self.job.take(&message.agent, item);
                        }
                    }
                    Err(why) => self.job.refuse(&why),
                }
            }
            Event::Named(name, is_there) => self.named(&name, is_there),
            Event::Clock(agent, Some(clock)) => self.job.clock(&agent, clock),
            Event::Clock(agent, None) => {
                if let Some(waits) = self.agents.get_mut(&agent) {
                    *waits = Some(Instant::now());
                }
            }
        }
    }

    fn named(&mut self, name: &str, is_there: bool) {
        match (name.split_once('/'), is_there) {
            (None, true) if self.agents.len() < MOST_AGENTS => self.compare(name),
            (None, true) => complain(format!("{name} is left out: {MOST_AGENTS} agents are known")),
            (None, false) => {
                self.agents.remove(name);
                self.job.lost(name);
            }
            (Some((agent, rank)), _) => match (wire::named(agent, rank), is_there) {
                (Some(who), true) => self.job.named(agent, &who),
                (Some(who), false) => self.job.gone(agent, &who.key()),
                // Whoever names such a thing is no agent.
                (None, _) => {}
            },
        }
    }

    /// Has an agent's clock compared, later where too many wait for that.
    fn compare(&mut self, agent: &str) {
        let Some(compares) = &self.compares else { return };
        let is_taken = compares.try_send(agent.to_owned()).is_ok();
        self.agents.insert(agent.to_owned(), (!is_taken).then(Instant::now));
    }

    fn ask_again(&mut self) {
        let waits = |since: &Option<Instant>| since.is_some_and(|since| since.elapsed() >= ASK_AGAIN);
        let again: Vec<String> =
            self.agents.iter().filter(|(_, since)| waits(since)).map(|(agent, _)| agent.clone()).collect();
        again.iter().for_each(|agent| self.compare(agent));
    }
}

/// Starts threads that compare the clocks of agents, which may take long where one does not answer.
fn compare_clocks(session: &Session, to: &SyncSender<Event>) -> io::Result<SyncSender<String>> {
    let (compares, agents) = sync_channel::<String>(MOST_QUEUED);
    let agents = Arc::new(Mutex::new(agents));
    for _ in 0..COMPARE {
        let (session, to, agents) = (session.clone(), to.clone(), agents.clone());
        let run = move || {
            loop {
                let next = agents.lock().recv();
                let Ok(agent) = next else { return };
                let clock = clocks::compare(&session, &agent);
                let _ = to.send(Event::Clock(agent, clock));
            }
        };
        std::thread::Builder::new().name("hostcall-clock".into()).spawn(run)?;
    }
    Ok(compares)
}
