//! An agent: passes on what the ranks of its machine say, and answers for them.
//!
//! What ranks say waits in a queue of 1024. Full, it holds up the threads that follow the ranks,
//! and these their sockets, and no rank. One thread makes messages of it, at most one each 5 ms, and
//! announces the ranks.

use crate::local::{Local, sends};
use crate::waits;
use crate::wire::{self, Item, Key, MOST_BYTES, MOST_ITEMS, What};
use crate::{Outcome, clocks, complain};
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

/// How long a new agent waits for a collector to ask it for its clock. Before that what it tells may be lost: the link does not
/// know yet that somebody hears it.
const KNOWN: Duration = Duration::from_secs(3);

/// Runs until the process is ended.
///
/// # Errors
/// When the link refuses what an agent does.
pub fn run(session: &Session, local: &Local, host: &str) -> Outcome {
    let name = name(host);
    let (known, is_known) = sync_channel(1);
    let _answers = {
        let (local, under_way) = (local.clone(), Arc::new(AtomicUsize::new(0)));
        session.answer(&name, move |asked| {
            if asked.what() == clocks::WHAT {
                let _ = known.try_send(());
            }
            answer(asked, &local, &under_way);
        })?
    };
    let _named = session.announce(&name)?;
    let (told, items) = sync_channel(MOST_QUEUED);
    let follow = {
        let local = local.clone();
        move || local.follow(&sends(told, |item| item))
    };
    std::thread::Builder::new().name("hostcall-find".into()).spawn(follow)?;
    let _ = is_known.recv_timeout(KNOWN);
    Tells { session, name, names: HashMap::new() }.run(&items)
}

/// Returns a name for an agent that no other one has.
pub fn name(host: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let host: String = host.chars().map(|c| if is_name(c) { c } else { '-' }).take(40).collect();
    format!("{host}.{}", std::process::id())
}

struct Tells<'a> {
    session: &'a Session,
    name: String,
    /// Of ranks that live.
    names: HashMap<Key, Member>,
}

impl Tells<'_> {
    fn run(&mut self, items: &Receiver<Item>) -> Outcome {
        loop {
            let Ok(first) = items.recv() else { return Ok(0) };
            let until = Instant::now() + GATHER;
            let (mut pieces, mut bytes, mut ended) = (Vec::new(), 0, Vec::new());
            let mut next = Some(first);
            while let Some(item) = next {
                match item.what {
                    What::Ended { .. } => ended.push(item.who.key()),
                    _ => self.announce(&item),
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
            ended.iter().for_each(|key| _ = self.names.remove(key));
        }
    }

    fn announce(&mut self, item: &Item) {
        let key = item.who.key();
        if self.names.contains_key(&key) {
            return;
        }
        let name = format!("{}/{}.{}", self.name, item.who.pid, item.who.since_ms);
        match self.session.announce(&name) {
            Ok(named) => _ = self.names.insert(key, named),
            Err(error) => complain(error.to_string()),
        }
    }
}

/// Answers a question on a thread of its own.
fn answer(asked: Asked, local: &Local, under_way: &Arc<AtomicUsize>) {
    if under_way.fetch_add(1, Ordering::SeqCst) >= MOST_ASKED {
        under_way.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let (local, counted) = (local.clone(), under_way.clone());
    let run = move || {
        match asked.what() {
            clocks::WHAT => asked.answer(clocks::answer()),
            waits::WHAT => waits::answer(&asked, &local),
            _ => {}
        }
        counted.fetch_sub(1, Ordering::SeqCst);
    };
    // Where the system starts no thread, there is no answer.
    if std::thread::Builder::new().name("hostcall-answer".into()).spawn(run).is_err() {
        under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
