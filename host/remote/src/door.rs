//! Who gets in: questions are checked, kept from running twice, counted, and known until they are answered or nobody waits for
//! them any more.
//!
//! The carrier's threads check what arrives ([`Door::let_in`]) and give it to the workers. Whatever calls the carrier, which
//! they must not, is done by the *clerk*, a thread of each service: it refuses, drops, and ends questions for which nobody
//! waits any more.

use crate::carrier::Arrived;
use crate::counts::add;
use crate::lanes::Lanes;
use crate::message::{Answer, Bad, Head, MAX_BYTES, Question};
use crate::once::Once;
use crate::session::SessionState;
use hostcall_abi::CallError;
use hostcall_abi::service::Method;
use hostcall_abi::status::Status;
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Most questions of a service that wait for a worker, and that are not answered. More of them get `Busy`.
pub(crate) const MOST_WAITING: usize = 256;
const MOST_UNDER_WAY: usize = 4096;

/// Most bytes of the messages with questions of a service that are not answered. More of them get `Busy`.
const MOST_BYTES: usize = 256 << 20;

/// How often the clerk looks for questions whose lanes have gone on, at most.
const LOOK_EACH: Duration = Duration::from_millis(1);

/// A question for a worker.
pub(crate) struct Work {
    pub method: usize,
    pub lanes: Arc<Lanes>,
}

/// What the clerk is to do.
pub(crate) enum Task {
    /// Refuse a question with an error for each call, or drop it.
    Refuse(Box<dyn Arrived>, Option<(Head, CallError)>),
    /// Drop a message that was read.
    Drop(Box<dyn Arrived>),
    /// End a question for which nobody waits any more.
    End(Arc<Lanes>),
    /// End the questions of a process that asks no more.
    EndAllOf(u64),
    /// Look when lanes go on.
    Look,
}

/// The door of a service.
pub(crate) struct Door {
    /// With the part of the key that names each.
    methods: Vec<(String, Method)>,
    session: Arc<SessionState>,
    known: Mutex<Known>,
    work: flume::Sender<Work>,
    clerk: flume::Sender<Task>,
}

#[derive(Default)]
struct Known {
    once: Once,
    /// Questions that are not answered, with the bytes of each, by process and batch.
    under_way: HashMap<(u64, u64), (Arc<Lanes>, usize)>,
    bytes: usize,
    /// When the clerk looks next whose lanes have gone on.
    looks_at: Option<Instant>,
}

impl Known {
    fn remove(&mut self, key: (u64, u64)) -> Option<Arc<Lanes>> {
        let (lanes, bytes) = self.under_way.remove(&key)?;
        self.bytes -= bytes;
        Some(lanes)
    }

    /// Takes the questions out for which this holds.
    fn remove_all(&mut self, mut which: impl FnMut(&Lanes) -> bool) -> Vec<Arc<Lanes>> {
        let removed = self.under_way.extract_if(|_, (lanes, _)| which(lanes));
        let (removed, bytes): (Vec<_>, Vec<_>) = removed.map(|(_, question)| question).unzip();
        self.bytes -= bytes.iter().sum::<usize>();
        removed
    }
}

/// Why a question is not let in: what its calls get, if they are told.
type Refused = Option<(Head, CallError)>;

impl Door {
    pub fn new(
        methods: Vec<(String, Method)>,
        session: Arc<SessionState>,
        work: flume::Sender<Work>,
        clerk: flume::Sender<Task>,
    ) -> Self {
        Self { methods, session, known: Mutex::default(), work, clerk }
    }

    /// Lets a question in, or has it refused.
    pub fn let_in(self: &Arc<Self>, arrived: Box<dyn Arrived>) {
        let came = Instant::now();
        // Nobody sends a task when the clerk has ended: that is after the door.
        let tell = |task| _ = self.clerk.send(task);
        let (question, method, bytes) = match self.check(&*arrived) {
            Ok(Some(checked)) => checked,
            Ok(None) => return tell(Task::Drop(arrived)),
            Err(refused) => return tell(Task::Refuse(arrived, refused)),
        };
        let head = question.head;
        let deadlines = question.calls.iter().map(|call| call.remaining.map(|remaining| came + remaining));
        let (door, session) = (Arc::downgrade(self), self.session.clone());
        let deadlines = deadlines.collect();
        let lanes = Arc::new(Lanes::new(question, deadlines, arrived, door, session));
        let refuse = |lanes: &Lanes, refused| {
            if let Some(arrived) = lanes.take_back() {
                tell(Task::Refuse(arrived, refused));
            }
        };
        match self.note(&lanes, bytes) {
            Ok(true) => tell(Task::Look),
            Ok(false) => {}
            Err(refused) => return refuse(&lanes, refused),
        }
        if self.work.try_send(Work { method, lanes: lanes.clone() }).is_err() {
            self.forget(&head);
            refuse(&lanes, Some((head, CallError::Busy)));
        }
    }

    /// Reads a message. Returns its question, the method and its bytes; `None` if it says that nobody waits for one any more.
    fn check(&self, arrived: &dyn Arrived) -> Result<Option<(Question, usize, usize)>, Refused> {
        let message = arrived.message();
        if message.len() > MAX_BYTES {
            return Err(None);
        }
        if let Some(head) = Head::of_unwanted(&message) {
            let lanes = self.known.lock().remove((head.process, head.batch));
            if let Some(lanes) = lanes {
                let _ = self.clerk.send(Task::End(lanes));
            }
            return Ok(None);
        }
        let question = match Question::decode(&message) {
            Ok(question) => question,
            Err(Bad::OtherVersion(head)) => return Err(Some((head, CallError::TypeMismatch))),
            // It does not say how many calls it has.
            Err(Bad::Malformed) => return Err(None),
        };
        let found = self.methods.iter().position(|(key, _)| key == arrived.method());
        let method = found.ok_or(Some((question.head, CallError::NoSuchService)))?;
        if self.methods[method].1.schema() != question.schema {
            return Err(Some((question.head, CallError::TypeMismatch)));
        }
        Ok(Some((question, method, message.len())))
    }

    /// Notes a question. Returns whether the clerk is to look.
    fn note(&self, lanes: &Arc<Lanes>, bytes: usize) -> Result<bool, Refused> {
        let (head, until) = (lanes.head(), lanes.until());
        let key = (head.process, head.batch);
        let mut known = self.known.lock();
        // Its process may have been forgotten while the question is under way.
        if known.under_way.contains_key(&key) || !known.once.is_new(head.process, head.batch) {
            return Err(None);
        }
        if known.under_way.len() == MOST_UNDER_WAY || known.bytes + bytes > MOST_BYTES {
            return Err(Some((*head, CallError::Busy)));
        }
        known.bytes += bytes;
        known.under_way.insert(key, (lanes.clone(), bytes));
        let is_next = until.is_some_and(|until| known.looks_at.is_none_or(|at| until < at));
        if is_next {
            known.looks_at = until;
        }
        Ok(is_next)
    }

    /// Forgets a question, which was answered.
    pub fn forget(&self, head: &Head) {
        let forgotten = self.known.lock().remove((head.process, head.batch));
        drop(forgotten);
    }

    /// Ends all questions: nobody gets answers from here any more.
    pub fn close(&self) {
        let ended = self.known.lock().remove_all(|_| true);
        ended.iter().for_each(|lanes| lanes.unwanted());
    }

    /// Ends the questions whose lanes have gone on. Returns when to look again.
    fn look(&self) -> Option<Instant> {
        let now = Instant::now();
        let (ended, next) = {
            let mut known = self.known.lock();
            let ended = known.remove_all(|lanes| lanes.until().is_some_and(|until| until <= now));
            let next = known.under_way.values().filter_map(|(lanes, _)| lanes.until()).min();
            known.looks_at = next.map(|next| next.max(now + LOOK_EACH));
            (ended, known.looks_at)
        };
        ended.iter().for_each(|lanes| lanes.unwanted());
        next
    }

    /// Does a task of the clerk's.
    fn work_off(&self, task: Task) {
        match task {
            Task::Refuse(arrived, refused) => {
                if let Some((head, error)) = refused {
                    arrived.answer(Answer::all(head, Status::Error(error)).encode());
                }
                add(&self.session.counts.refused, 1);
            }
            Task::Drop(arrived) => drop(arrived),
            Task::End(lanes) => lanes.unwanted(),
            Task::EndAllOf(process) => {
                let ended = self.known.lock().remove_all(|lanes| lanes.head().process == process);
                ended.iter().for_each(|lanes| lanes.unwanted());
            }
            Task::Look => {}
        }
    }
}

/// Works for a door until it is gone.
pub(crate) fn clerk(door: &Weak<Door>, tasks: &flume::Receiver<Task>) {
    let mut next: Option<Instant> = None;
    loop {
        let task = match next {
            None => tasks.recv().map_err(|_| flume::RecvTimeoutError::Disconnected),
            Some(at) => tasks.recv_deadline(at),
        };
        let (Some(door), false) =
            (door.upgrade(), matches!(task, Err(flume::RecvTimeoutError::Disconnected)))
        else {
            return;
        };
        let looks = matches!(task, Ok(Task::Look) | Err(_));
        if let Ok(task) = task {
            door.work_off(task);
        }
        if looks {
            next = door.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Asked, VERSION};
    use crate::once::MOST_CALLERS;
    use std::borrow::Cow;

    struct Given(Vec<u8>);

    impl Arrived for Given {
        fn method(&self) -> &str {
            "Store/next"
        }
        fn message(&self) -> Cow<'_, [u8]> {
            Cow::Borrowed(&self.0)
        }
        fn answer(&self, _: Vec<u8>) {}
    }

    #[test]
    fn a_question_under_way_is_known_when_its_process_is_forgotten() {
        let method = Method::untyped("Store::next", 700);
        let (work, _waits) = flume::bounded(1);
        let (tasks, to_do) = flume::unbounded();
        let door = Arc::new(Door::new(vec![("Store/next".to_owned(), method)], Arc::default(), work, tasks));
        let refused = |process| {
            let head = Head { version: VERSION, width: 0, count: 1, batch: 1, process };
            let calls = vec![Asked { remaining: None, lane: 0 }];
            let question = Question { head, schema: method.schema(), calls, words: Vec::new() };
            door.let_in(Box::new(Given(question.encode())));
            to_do.try_iter().next()
        };
        assert!(refused(0).is_none());
        for process in 1..=MOST_CALLERS as u64 {
            assert!(matches!(refused(process), Some(Task::Refuse(_, Some((_, CallError::Busy))))));
        }
        assert!(matches!(refused(0), Some(Task::Refuse(_, None))));
        assert_eq!(door.known.lock().under_way.len(), 1);
    }
}
