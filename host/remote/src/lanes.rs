//! The lanes of a question, which wait in another process: the answerer's end of a batch.

use crate::carrier::Arrived;
use crate::counts::add;
use crate::door::Door;
use crate::message::{Answer, Head, Question};
use crate::session::SessionState;
use hostcall_abi::CallError;
use hostcall_abi::status::Status;
use hostcall_locks::Mutex;
use hostcall_service::gather::{GatheredLanes, Wakers};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// The answers that calls of a question have so far.
struct Answers {
    /// None once the question was answered, or nobody waits for it any more.
    of: Vec<Option<Status>>,
    /// Calls without an answer.
    left: usize,
    width: usize,
    /// `width` words for each call.
    words: Vec<u64>,
}

impl Answers {
    /// Makes room for so many result words of each call.
    fn widen(&mut self, width: usize) {
        if width > self.width {
            let mut words = vec![0; self.of.len() * width];
            for (to, from) in words.chunks_exact_mut(width).zip(self.words.chunks_exact(self.width.max(1))) {
                to[..from.len()].copy_from_slice(from);
            }
            (self.words, self.width) = (words, width);
        }
    }

    /// Takes the answers. Later ones are dropped.
    fn take(&mut self) -> Answers {
        std::mem::replace(self, Answers { of: Vec::new(), left: 0, width: 0, words: Vec::new() })
    }
}

/// The lanes of a question.
pub(crate) struct Lanes {
    head: Head,
    /// `None` once a worker has it, or nobody waits for its answer any more.
    question: Mutex<Option<Question>>,
    deadlines: Vec<Option<Instant>>,
    /// When the last lane goes on by itself; `None` if one waits as long as it takes.
    until: Option<Instant>,
    answers: Mutex<Answers>,
    /// `None` once it was answered, or nobody waits for it any more.
    arrived: Mutex<Option<Box<dyn Arrived>>>,
    wakers: Wakers,
    door: Weak<Door>,
    session: Arc<SessionState>,
}

impl Lanes {
    pub fn new(
        question: Question,
        deadlines: Vec<Option<Instant>>,
        arrived: Box<dyn Arrived>,
        door: Weak<Door>,
        session: Arc<SessionState>,
    ) -> Self {
        let answers =
            Answers { of: vec![None; deadlines.len()], left: deadlines.len(), width: 0, words: Vec::new() };
        let (answers, arrived) = (Mutex::new(answers), Mutex::new(Some(arrived)));
        let until = deadlines.iter().copied().reduce(|last, deadline| Some(last?.max(deadline?))).flatten();
        let (head, question) = (question.head, Mutex::new(Some(question)));
        Self { head, question, deadlines, until, answers, arrived, wakers: Wakers::default(), door, session }
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    pub fn deadlines(&self) -> &[Option<Instant>] {
        &self.deadlines
    }

    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Takes the question, to be handled; `None` if nobody waits for its answer any more.
    pub fn take_question(&self) -> Option<Question> {
        self.question.lock().take()
    }

    /// Takes the question back, to be refused.
    pub fn take_back(&self) -> Option<Box<dyn Arrived>> {
        self.answers.lock().take();
        self.arrived.lock().take()
    }

    /// Returns whether the question was answered, or nobody waits for it any more.
    pub fn is_over(&self) -> bool {
        self.answers.lock().of.is_empty()
    }

    /// Waits until the question was answered, or nobody waits for it any more. One thread may.
    pub fn poll_over(&self, context: &mut Context<'_>) -> Poll<()> {
        self.wakers.set(Wakers::DRIVER, context.waker());
        if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ends the question, for which nobody waits any more.
    pub fn unwanted(&self) {
        let was_over = self.answers.lock().take().of.is_empty();
        drop(self.take_question());
        drop(self.arrived.lock().take());
        add(&self.session.counts.unwanted, usize::from(!was_over));
        self.wakers.tell();
    }

    fn is_late(&self, place: usize, now: Instant) -> bool {
        self.deadlines[place].is_some_and(|deadline| deadline <= now)
    }

    /// Sends the answer.
    fn send(&self, answers: Answers) {
        let Some(arrived) = self.arrived.lock().take() else { return };
        let statuses =
            answers.of.into_iter().map(|status| status.unwrap_or(Status::Error(CallError::Cancelled)));
        let head = Head { width: answers.width as u16, ..self.head };
        arrived.answer(Answer { head, statuses: statuses.collect(), words: answers.words }.encode());
        drop(arrived);
        add(&self.session.counts.answered, 1);
        if let Some(door) = self.door.upgrade() {
            door.forget(&self.head);
        }
        self.wakers.tell();
    }
}

impl GatheredLanes for Lanes {
    fn answer(&self, places: &[u32], statuses: &[Status], words: &[u64]) {
        let width = words.len().checked_div(places.len()).unwrap_or(0);
        let now = Instant::now();
        let mut guard = self.answers.lock();
        let answers = &mut *guard;
        if answers.of.is_empty() {
            return;
        }
        answers.widen(width);
        for (at, place) in places.iter().enumerate() {
            let place = *place as usize;
            if answers.of[place].is_some() {
                continue;
            }
            let is_late = self.is_late(place, now);
            let status = if is_late { Status::Error(CallError::TimedOut) } else { statuses[at] };
            answers.of[place] = Some(status);
            if status == Status::Ok {
                answers.words[place * answers.width..][..width]
                    .copy_from_slice(&words[at * width..(at + 1) * width]);
            }
            answers.left -= 1;
        }
        if answers.left == 0 {
            let answers = answers.take();
            drop(guard);
            self.send(answers);
        }
    }

    fn waits(&self, place: u32) -> bool {
        let place = place as usize;
        let is_open = self.answers.lock().of.get(place).is_some_and(Option::is_none);
        is_open && !self.is_late(place, Instant::now())
    }

    fn is_wanted(&self) -> bool {
        let now = Instant::now();
        let answers = self.answers.lock();
        (0..answers.of.len()).any(|place| answers.of[place].is_none() && !self.is_late(place, now))
    }

    fn wake_when_unwanted(&self, id: u64, waker: &Waker) {
        self.wakers.set(id, waker);
    }

    fn forget_waker(&self, id: u64) {
        self.wakers.forget(id);
    }

    fn end(&self, panicked: bool) {
        let error = if panicked { CallError::Panicked } else { CallError::Cancelled };
        let mut answers = self.answers.lock().take();
        if answers.of.is_empty() {
            return;
        }
        let now = Instant::now();
        for (place, of) in answers.of.iter_mut().enumerate() {
            let error = if self.is_late(place, now) { CallError::TimedOut } else { error };
            of.get_or_insert(Status::Error(error));
        }
        self.send(answers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::VERSION;
    use std::borrow::Cow;
    use std::time::Duration;

    /// A question that keeps its answer.
    struct Given(Arc<Mutex<Vec<u8>>>);

    impl Arrived for Given {
        fn method(&self) -> &str {
            ""
        }
        fn message(&self) -> Cow<'_, [u8]> {
            Cow::default()
        }
        fn answer(&self, message: Vec<u8>) {
            *self.0.lock() = message;
        }
    }

    /// A handler that sees that nobody waits any more drops the calls, before the door has ended the question.
    #[test]
    fn late_calls_that_are_dropped_timed_out() {
        let answer = Arc::new(Mutex::default());
        let head = Head { version: VERSION, width: 0, count: 3, batch: 1, process: 1 };
        let now = Instant::now();
        let deadlines = vec![Some(now), None, Some(now + Duration::from_secs(3600))];
        let arrived = Box::new(Given(answer.clone()));
        let question = Question { head, schema: 0, calls: Vec::new(), words: Vec::new() };
        let lanes = Lanes::new(question, deadlines, arrived, Weak::new(), Arc::default());
        lanes.end(false);
        let answer = answer.lock();
        let statuses = Answer::decode(&answer).expect("it was answered").statuses;
        let [late, other] = [CallError::TimedOut, CallError::Cancelled].map(Status::Error);
        assert_eq!(statuses[..], [late, other, other]);
    }
}
