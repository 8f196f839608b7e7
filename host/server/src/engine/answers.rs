//! The answers to the lanes of a call that left its consumer. Whoever is first gives a lane its answer: the handler, the
//! lane's deadline, or a cancellation.
//!
//! # Invariants
//! - Whoever answers a lane has the lock and clears the lane's bit of `open`: each lane is answered once.
//! - When no bit is left, the packet's answer is gone before the last bit is: whoever sees no lane that waits
//!   finds the call's slot free.
//! - A request is read and a reply is written under the lock, since the lane has its memory for other things
//!   once it is answered. Such a copy takes its time. So consumers and the watchdog do not wait for the lock
//!   once another thread may have it: they read words, try it, or leave what is to be done to whoever has it
//!   ([`Answers::give_up_soon`]).

use crate::primitive::{AtomicBool, AtomicU64, Mutex, Ordering, fence};
use std::ops::DerefMut;
use std::task::{Context, Poll, Waker};

/// In place of the rank of a lane: all lanes.
const ALL: u32 = u64::BITS;

/// The answer to a call's packet, which has one for each of its lanes.
pub(crate) trait PacketAnswer {
    /// Answers all lanes that have no answer, which are so many: nobody handles their calls any more.
    fn give_up(&mut self, lanes: u32);
}

/// Who learns that lanes were answered, under no lock.
pub(crate) trait Notify {
    /// One lane was answered, or several; they are the last ones of their call if `is_last`.
    fn answered(&self, is_last: bool);
}

/// The answers to the lanes of a call, by the lanes' ranks.
pub(crate) struct Answers<A, N> {
    /// Ranks of the lanes that have no answer, a bit each. Changed under the lock.
    open: AtomicU64,
    /// Lanes that have no answer are to be given up.
    is_given_up: AtomicBool,
    /// `None` when each lane has its answer.
    answer: Mutex<Option<A>>,
    /// Futures that handle lanes, by rank, or all of them, by [`ALL`]: they end when these have their answers.
    wakers: Mutex<Vec<(u32, Waker)>>,
    notify: N,
}

impl<A: PacketAnswer, N: Notify> Answers<A, N> {
    /// Makes the answers to so many lanes, 1 to 64.
    pub fn new(lanes: u32, answer: A, notify: N) -> Self {
        Self {
            open: AtomicU64::new(u64::MAX >> (64 - lanes)),
            is_given_up: AtomicBool::new(false),
            answer: Mutex::new(Some(answer)),
            wakers: Mutex::new(Vec::new()),
            notify,
        }
    }

    /// Returns the ranks of the lanes that have no answer, a bit each.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Returns whether a lane has no answer.
    pub fn waits(&self, rank: u32) -> bool {
        self.open() >> rank & 1 != 0
    }

    /// Does what must not be done for a lane that is answered already, and returns its result. The lane gets no answer
    /// meanwhile.
    pub fn with<R>(&self, rank: u32, work: impl FnOnce(&mut A) -> R) -> Option<R> {
        let mut answer = self.answer.lock();
        let result = answer.as_mut().filter(|_| self.waits(rank)).map(work);
        drop(answer);
        self.give_up_rest();
        result
    }

    /// Answers those of the lanes of these ranks, a bit each, that have no answer. `give` does it, and is told which they are,
    /// and whether they are the last ones.
    pub fn give_many(&self, ranks: u64, give: impl FnOnce(&mut A, u64, bool)) {
        self.give_under(self.answer.lock(), ranks, give);
    }

    /// Answers a lane, unless it has an answer. `give` does it, and is told whether the lane is the last one.
    pub fn give(&self, rank: u32, give: impl FnOnce(&mut A, bool)) {
        self.give_many(1 << rank, |answer, _, is_last| give(answer, is_last));
    }

    /// Does what [`Answers::give`] does, unless somebody has the lock. Returns whether the lane has an answer.
    pub fn try_give(&self, rank: u32, give: impl FnOnce(&mut A, bool)) -> bool {
        if let Some(answer) = self.answer.try_lock() {
            self.give_under(answer, 1 << rank, |answer, _, is_last| give(answer, is_last));
        }
        !self.waits(rank)
    }

    fn give_under(
        &self,
        mut answer: impl DerefMut<Target = Option<A>>,
        ranks: u64,
        give: impl FnOnce(&mut A, u64, bool),
    ) {
        let open = self.open();
        let rest = open & !ranks;
        let given =
            answer.as_mut().filter(|_| rest != open).map(|answer| give(answer, open & ranks, rest == 0));
        if given.is_some() {
            if rest == 0 {
                *answer = None;
            }
            self.open.store(rest, Ordering::Release);
        }
        drop(answer);
        if given.is_some() {
            self.tell(open & ranks, rest == 0);
        }
        self.give_up_rest();
    }

    /// Gives up the lanes that have no answer. They are answered when this returns.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        let answer = self.answer.lock();
        self.give_up_locked(answer);
    }

    /// Gives up the lanes that have no answer, without waiting: where somebody has the lock, it is they who do it.
    pub fn give_up_soon(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        self.give_up_rest();
    }

    /// Gives up the lanes that have no answer, if that is asked for. Whoever releases the lock calls this afterwards.
    ///
    /// This is Dekker's order: who gives up stores that and then tries the lock, who has the lock releases it and then looks
    /// whether somebody gives up. One of them sees what the other did.
    fn give_up_rest(&self) {
        fence(Ordering::SeqCst);
        if self.is_given_up.load(Ordering::Relaxed)
            && self.open() != 0
            && let Some(answer) = self.answer.try_lock()
        {
            self.give_up_locked(answer);
        }
    }

    /// Gives up the lanes that have no answer, for who has the lock.
    fn give_up_locked(&self, mut answer: impl DerefMut<Target = Option<A>>) {
        let Some(mut last) = answer.take() else { return };
        let open = self.open();
        last.give_up(open.count_ones());
        drop(last);
        self.open.store(0, Ordering::Release);
        drop(answer);
        self.tell(open, true);
    }

    /// Tells that lanes of these ranks have their answers.
    fn tell(&self, ranks: u64, is_last: bool) {
        self.notify.answered(is_last);
        let mut wakers = self.wakers.lock();
        let is_told = |rank| if rank == ALL { is_last } else { ranks >> rank & 1 != 0 };
        let woken: Vec<_> = wakers.extract_if(.., |(rank, _)| is_told(*rank)).collect();
        drop(wakers);
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Waits until a lane has its answer.
    pub fn poll_answered(&self, rank: u32, context: &mut Context<'_>) -> Poll<()> {
        self.wake(rank, context);
        if self.waits(rank) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Waits until all lanes have their answers. One future may.
    pub fn poll_all_answered(&self, context: &mut Context<'_>) -> Poll<()> {
        self.wake(ALL, context);
        if self.open() != 0 { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Has a future woken. Whoever answers its lanes later finds the waker; who did it before is to be seen after this.
    fn wake(&self, rank: u32, context: &mut Context<'_>) {
        let mut wakers = self.wakers.lock();
        match wakers.iter_mut().find(|(of, _)| *of == rank) {
            Some((_, waker)) => waker.clone_from(context.waker()),
            None => wakers.push((rank, context.waker().clone())),
        }
    }
}
