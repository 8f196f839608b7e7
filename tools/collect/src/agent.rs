//! An agent: passes on what the ranks of its machine say, and answers for them.
//!
//! A rank is announced before anything of it is told: its name says which rank it is, and reaches also a
//! collector that comes later. What ranks say waits in a queue of 1024. Full, it holds up the threads that
//! follow the ranks, and these their sockets, and no rank. One thread makes messages of it, at most one each
//! 5 ms, once a collector has asked for the clock: before that nobody may hear them.

use crate::local::{Local, sends};
use crate::traces::{self, Recorded};
use crate::wire::{self, Item, Key, MOST_BYTES, MOST_ITEMS, What};
use crate::{Outcome, clocks, complain};
use crate::{top, waits};
use hostcall_locks::Mutex;
use hostcall_remote::{Asked, Member, Session};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// What waits to be told, and how long it is gathered for a message.
const MOST_QUEUED: usize = 1024;
const GATHER: Duration = Duration::from_millis(5);

/// Bytes from which on a message is told.
const FULL_BYTES: usize = MOST_BYTES / 4;

/// Questions that are answered at a time. Others have no answer.
const MOST_ASKED: usize = 32;

/// After how long without a collector's question it is said that there is none.
const ASKED_LATE: Duration = Duration::from_secs(10);

/// Runs until the process is ended.
///
/// # Errors
/// When the link refuses what an agent does.
pub fn run(session: &Session, local: &Local, host: &str) -> Outcome {
    let name = wire::agent_name(host);
    let (known, is_known) = sync_channel(1);
    let _answers = {
        let (local, under_way) = (local.clone(), Arc::new(AtomicUsize::new(0)));
        let (recorded, agent) = (Arc::new(Recorded::new(&name)), Arc::<str>::from(&*name));
        session.answer(&name, move |asked| {
            if asked.what() == clocks::WHAT {
                let _ = known.try_send(());
            }
            answer(asked, &agent, &local, &recorded, &under_way);
        })?
    };
    let _named = session.announce(&name)?;
    let (told, items) = sync_channel(MOST_QUEUED);
    let names = Names { session: session.clone(), agent: name.clone(), names: Arc::default() };
    let follow = {
        let (local, names) = (local.clone(), names.clone());
        let sends = sends(told, |item| item);
        move || {
            local.follow(&move |item| {
                names.announce(&item);
                sends(item)
            });
        }
    };
    std::thread::Builder::new().name("hostcall-find".into()).spawn(follow)?;
    if is_known.recv_timeout(ASKED_LATE).is_err() {
        complain("no collector has asked for anything yet: nothing is passed on before one does");
        // The function that answers is kept until this one returns: only a question ends the wait.
        let _ = is_known.recv();
    }
    Tells { session, name, names }.run(&items)
}

/// The names of the ranks that live, on the link.
#[derive(Clone)]
struct Names {
    session: Session,
    agent: String,
    names: Arc<Mutex<HashMap<Key, Member>>>,
}

impl Names {
    fn announce(&self, item: &Item) {
        let key = item.who.key();
        if matches!(item.what, What::Ended { .. }) || self.names.lock().contains_key(&key) {
            return;
        }
        match self.session.announce(&wire::rank_name(&self.agent, &item.who)) {
            Ok(named) => _ = self.names.lock().insert(key, named),
            Err(error) => complain(error.to_string()),
        }
    }
}

struct Tells<'a> {
    session: &'a Session,
    name: String,
    names: Names,
}

impl Tells<'_> {
    fn run(&self, items: &Receiver<Item>) -> Outcome {
        loop {
            let Ok(first) = items.recv() else { return Ok(0) };
            let until = Instant::now() + GATHER;
            let (mut pieces, mut bytes, mut ended) = (Vec::new(), 0, Vec::new());
            let mut next = Some(first);
            while let Some(item) = next {
                if let What::Ended { .. } = item.what {
                    ended.push(item.who.key());
                }
                if let Ok(piece) = serde_json::to_string(&item) {
                    bytes += piece.len();
                    pieces.push(piece);
                }
                next = match bytes >= FULL_BYTES || pieces.len() >= MOST_ITEMS {
                    true => None,
                    false => match items.recv_timeout(until.saturating_duration_since(Instant::now())) {
                        Ok(item) => Some(item),
                        Err(RecvTimeoutError::Timeout) => None,
                        Err(RecvTimeoutError::Disconnected) => return Ok(0),
                    },
                };
            }
            self.session.tell(&self.name, wire::write(&self.name, &pieces)?)?;
            // How it ended has left before that it has.
            for key in &ended {
                let named = self.names.names.lock().remove(key);
                drop(named);
            }
        }
    }
}

/// Answers a question on a thread of its own.
fn answer(
    asked: Asked,
    agent: &Arc<str>,
    local: &Local,
    recorded: &Arc<Recorded>,
    under_way: &Arc<AtomicUsize>,
) {
    if under_way.fetch_add(1, Ordering::SeqCst) >= MOST_ASKED {
        under_way.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let (agent, local) = (agent.clone(), local.clone());
    let (recorded, counted) = (recorded.clone(), under_way.clone());
    let run = move || {
        match asked.what() {
            clocks::WHAT => asked.answer(clocks::answer()),
            waits::WHAT => waits::answer(&asked, &local),
            top::WHAT => top::answer(asked, &agent, &local),
            what if what.starts_with(traces::WHAT) => recorded.answer(&asked, &local),
            _ => {}
        }
        counted.fetch_sub(1, Ordering::SeqCst);
    };
    // Where the system starts no thread, there is no answer.
    if std::thread::Builder::new().name("hostcall-answer".into()).spawn(run).is_err() {
        under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
