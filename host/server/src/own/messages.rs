//! Byte messages, put together from pieces, and the loans in which lanes read long replies. What the host
//! keeps of them is bounded together, see [`Budget`].

use crate::engine::LaunchSet;
use crate::engine::budget::{Budget, Charge, Charged, OverBudget};
use crate::engine::loans::{HeldLoan, LentLoan, LoanPool};
use hostcall_abi::MAX_LANES;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_abi::word::{BytesHead, LEAST_REPLY_TO_PUT, MOST_REPLY_TO_PULL, ReplyAt};
use hostcall_locks::{Mutex, RwLock};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that a lane of a GPU reads by itself in the 10 µs that each copy takes for which it has to wait.
const BYTES_A_COPY: usize = 300;

/// Most bytes of a message that are fetched at once: pinned memory is not freed while kernels run.
const FETCHED_AT_ONCE: usize = 1 << 20;

/// Bytes of a message that were fetched from where its lane has them.
pub(crate) enum Fetched {
    Copied(Vec<u8>),
    /// The first `bytes` of a loan that is not lent.
    InPlace {
        loan: HeldLoan,
        bytes: usize,
    },
}

impl Fetched {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::InPlace { loan, bytes } => &loan.bytes()[..*bytes],
        }
    }

    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Copied(bytes) => bytes,
            Self::InPlace { .. } => self.as_slice().to_vec(),
        }
    }
}

/// Argument words of a message. Those that come in the line need no memory of their own.
pub(crate) type ArgumentWords = SmallVec<[u64; BytesHead::LINE_WORDS]>;

/// A slot and a lane of its wave.
pub(crate) type LaneKey = (u32, u8);

/// What the host keeps of a lane between packets.
pub(crate) struct Kept {
    launch: LaunchId,
    bytes: KeptBytes,
}

enum KeptBytes {
    /// The message so far.
    Message { words: ArgumentWords, bytes: Charged },
    /// The last long reply, until the lane's next message: then it has read this one.
    Reply(LentLoan),
}

/// What the host keeps of all lanes between packets.
pub(crate) struct Messages {
    pub budget: Arc<Budget>,
    loans: Arc<LoanPool>,
    lanes: Mutex<HashMap<LaneKey, Kept>>,
    /// Lanes of which something is kept.
    count: AtomicUsize,
    /// Per slot: `lanes` may have something of its lanes.
    slots: Box<[AtomicBool]>,
    /// Whether lanes may have stopped waiting without an answer, so that nothing is put into their memory any more. Locked
    /// while something is.
    is_over: RwLock<bool>,
    /// Replies that are being copied to lanes.
    copying: AtomicUsize,
}

impl Messages {
    pub fn new(budget: Arc<Budget>, loans: Arc<LoanPool>, slots: u32) -> Self {
        let slots = (0..slots).map(|_| AtomicBool::new(false)).collect();
        let (lanes, count, copying) = (Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { budget, loans, lanes, count, slots, is_over: RwLock::new(false), copying }
    }

    /// Changes what is kept, and gives what `change` returns after that. What is forgotten is freed after the lock: that may
    /// take its time.
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<LaneKey, Kept>) -> T) -> T {
        let mut lanes = self.lanes.lock();
        let result = change(&mut lanes);
        self.count.store(lanes.len(), Ordering::Relaxed);
        result
    }

    fn keep(&self, key: LaneKey, launch: LaunchId, bytes: KeptBytes) {
        self.slots[key.0 as usize].store(true, Ordering::Relaxed);
        let _forgotten = self.change(|lanes| lanes.insert(key, Kept { launch, bytes }));
    }

    /// Takes what is kept of a lane. It sends a message after it has seen the answer before, so that this is seen here too.
    fn take_kept(&self, key: LaneKey) -> Option<Kept> {
        let may_have =
            self.count.load(Ordering::Relaxed) > 0 && self.slots[key.0 as usize].load(Ordering::Relaxed);
        if may_have { self.change(|lanes| lanes.remove(&key)) } else { None }
    }

    /// Takes a message that came in one piece. `line` are the words behind the head, of which and of `read`
    /// [`Messages::take_piece`] tells more. The message's bytes stay where they are, to be read later.
    pub fn take_whole(
        &self,
        key: LaneKey,
        (head, line): (&BytesHead, &[u64]),
        share: usize,
        mut read: impl FnMut(usize, usize, &mut Vec<u8>),
    ) -> Result<(ArgumentWords, Charge, Unread), CallError> {
        let mut before = self.take_kept(key);
        if !self.budget.has_half() {
            // Where memory is short, it is not to wait for a thread.
            before = None;
        }
        let (total, words_end) = (head.total_bytes, head.words_end());
        if total > self.budget.most_each as u64 {
            return Err(CallError::TooLarge);
        }
        let bytes = (total as usize).checked_sub(words_end).ok_or(CallError::Malformed)?;
        let in_area = if head.bytes_at == 0 { total } else { words_end as u64 };
        if in_area != u64::from(head.piece_bytes) || head.piece_bytes as usize > share {
            return Err(CallError::Malformed);
        }
        let mut charge = Charge::new(&self.budget);
        self.with_room(|| charge.add(bytes))?;
        let words = argument_words(head, line, &mut read);
        Ok((
            words,
            charge,
            Unread { area: head.area, from: words_end, bytes, lent_at: head.bytes_at, before },
        ))
    }

    /// Takes a piece of a lane's message, which `read` appends to a vector: it is given the first byte and
    /// the count of bytes, of the `share` bytes that the lane has of the byte area. `line` are the [`BytesHead::LINE_WORDS`]
    /// words behind the head. Returns the message if this was its last piece and `is_last` says so.
    ///
    /// # Errors
    /// [`CallError::TooLarge`] or [`CallError::Busy`] for what would be more than is allowed, [`CallError::Malformed`] for
    /// pieces that do not fit together. The lane's message is forgotten then.
    pub fn take_piece(
        &self,
        key: LaneKey,
        launch: LaunchId,
        (head, line): (&BytesHead, &[u64]),
        share: usize,
        is_last: bool,
        mut read: impl FnMut(usize, usize, &mut Vec<u8>),
    ) -> Result<Option<Message>, CallError> {
        // What the lane has left behind is of no use to anybody, whatever comes now.
        let before = self.take_kept(key);
        let total = usize::try_from(head.total_bytes).map_err(|_| CallError::TooLarge)?;
        let (piece, words_end) = (head.piece_bytes as usize, head.words_end());
        if total > self.budget.most_each {
            return Err(CallError::TooLarge);
        }
        if piece > share {
            return Err(CallError::Malformed);
        }
        let (words, mut bytes, from) = match before {
            // Argument words that are not in the line are in the first piece.
            _ if head.begins => {
                if words_end > piece {
                    return Err(CallError::Malformed);
                }
                (argument_words(head, line, &mut read), Charged::new(&self.budget), words_end)
            }
            Some(Kept { bytes: KeptBytes::Message { words, bytes }, .. })
                if words.len() == usize::from(head.argument_words) =>
            {
                (words, bytes, 0)
            }
            _ => return Err(CallError::Malformed),
        };
        let so_far = words_end + bytes.bytes.len();
        if so_far + piece - from > total {
            return Err(CallError::Malformed);
        }
        self.with_room(|| bytes.charge.add(piece - from))?;
        read(from, piece - from, &mut bytes.bytes);
        if !is_last {
            self.keep(key, launch, KeptBytes::Message { words, bytes });
            return Ok(None);
        }
        if words_end + bytes.bytes.len() != total {
            return Err(CallError::Malformed);
        }
        let (bytes, charge) = bytes.into_parts();
        Ok(Some(Message { words, bytes, charge }))
    }

    /// Takes memory for a reply of at least so many bytes.
    pub fn loan(&self, bytes: usize) -> Result<HeldLoan, CallError> {
        self.with_room(|| self.loans.take(&self.budget, bytes))
    }

    /// Returns a loan with these bytes.
    pub fn loan_of(&self, bytes: &[u8]) -> Result<HeldLoan, CallError> {
        let mut loan = self.loan(bytes.len())?;
        loan.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Ok(loan)
    }

    /// Whether a lane that wants its reply there has so many bytes out of a loan sooner than the host has copied them. It
    /// keeps the loan meanwhile, which is well while there is room for more.
    pub fn is_sooner_pulled(&self, bytes: usize, at: ReplyAt) -> bool {
        let is_alone = self.copying.load(Ordering::Relaxed) == 0;
        let alone = at.most_to_pull_alone();
        let most = if is_alone { alone } else { alone.max(MOST_REPLY_TO_PULL) };
        at.pulls() && (LEAST_REPLY_TO_PUT..=most).contains(&bytes) && self.budget.has_half()
    }

    /// Takes something of the budget. If it has not so much, loans are taken back first: lanes keep that of
    /// their last reply until they call again.
    fn with_room<T>(&self, mut take: impl FnMut() -> Result<T, OverBudget>) -> Result<T, CallError> {
        take().or_else(|_| {
            self.take_returned();
            take().map_err(CallError::from)
        })
    }

    /// Lends a reply to the lane that is answered next, from this thread. Returns its address.
    pub fn lend(&self, key: LaneKey, launch: LaunchId, reply: HeldLoan) -> u64 {
        let (lent, address) = reply.lend();
        self.keep(key, launch, KeptBytes::Reply(lent));
        address
    }

    /// Fetches the bytes of a message that its lane, which waits for its answer, has at `address`: into the memory in which
    /// the handler gets them, if they are no more than [`FETCHED_AT_ONCE`].
    ///
    /// # Errors
    /// [`CallError::Malformed`] when there is no such memory, [`CallError::Cancelled`] when lanes may not wait any more.
    pub fn fetch(&self, address: u64, bytes: usize) -> Result<Fetched, CallError> {
        let fetch = |at: usize, to: &mut [u8]| {
            let from = address.checked_add(at as u64).ok_or(CallError::Malformed)?;
            let is_over = self.is_over.read();
            if *is_over {
                return Err(CallError::Cancelled);
            }
            if self.loans.copy_from_lane(from, to) { Ok(()) } else { Err(CallError::Malformed) }
        };
        // A GPU's copies to memory that is not pinned take several times as long.
        let Ok(mut loan) = self.loans.take(&self.budget, bytes.min(FETCHED_AT_ONCE)) else {
            let mut fetched = vec![0; bytes];
            return fetch(0, &mut fetched).map(|()| Fetched::Copied(fetched));
        };
        if bytes <= FETCHED_AT_ONCE {
            fetch(0, &mut loan.bytes_mut()[..bytes])?;
            return Ok(Fetched::InPlace { loan, bytes });
        }
        let mut fetched = Vec::with_capacity(bytes);
        while fetched.len() < bytes {
            let part = &mut loan.bytes_mut()[..FETCHED_AT_ONCE.min(bytes - fetched.len())];
            fetch(fetched.len(), part)?;
            fetched.extend_from_slice(part);
        }
        Ok(Fetched::Copied(fetched))
    }

    /// Puts the bytes of a reply where its lane, which waits for its answer, wants them: at
    /// `at`, if that is not 0. `lanes` of its packet wait, each for as much. Returns `false` when the lane has to read them itself.
    pub fn copy_to_lane(&self, bytes: &[u8], at: u64, lanes: u32) -> bool {
        if at == 0 {
            return false;
        }
        // Lanes read side by side, and the host copies for one after the other.
        let before = self.copying.fetch_add(1, Ordering::Relaxed);
        let is_faster = bytes.len() >= LEAST_REPLY_TO_PUT * lanes as usize + BYTES_A_COPY * before;
        let is_over = self.is_over.read();
        let is_there = is_faster && !*is_over && self.loans.copy_to_lane(bytes, at);
        self.copying.fetch_sub(1, Ordering::Relaxed);
        is_there
    }

    /// Waits until nothing is being put into lanes' memory. Nothing is from then on.
    pub fn end_copies(&self) {
        *self.is_over.write() = true;
    }

    /// Takes back the loans whose lanes say that they have read their replies.
    fn take_returned(&self) {
        let returned: Vec<_> = self.change(|lanes| {
            let is_returned =
                |kept: &mut Kept| matches!(&kept.bytes, KeptBytes::Reply(loan) if loan.is_returned());
            lanes.extract_if(|_, kept| is_returned(kept)).collect()
        });
        drop(returned);
    }

    /// Forgets what the lanes of a slot left behind: another wave has it.
    pub fn forget(&self, slot: u32) {
        let may_have = &self.slots[slot as usize];
        if may_have.load(Ordering::Relaxed) {
            may_have.store(false, Ordering::Relaxed);
            let of_slot = |lanes: &mut HashMap<_, _>| -> Vec<Kept> {
                (0..MAX_LANES as u8).filter_map(|lane| lanes.remove(&(slot, lane))).collect()
            };
            drop(self.change(of_slot));
        }
    }

    /// Leaves to the process, for good, what lanes were lent that may read when there is no server any more: those of contexts.
    pub fn leave_loans(&self) {
        let lent = |lanes: &mut HashMap<_, Kept>| -> Vec<_> {
            lanes.extract_if(|_, kept| matches!(kept.bytes, KeptBytes::Reply(_))).collect()
        };
        std::mem::forget(self.change(lent));
    }

    /// Forgets what the lanes of a launch left behind: it has ended.
    pub fn forget_launches(&self, launches: &LaunchSet) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let of_launch = |lanes: &mut HashMap<_, Kept>| -> Vec<_> {
                lanes.extract_if(|_, kept| launches.contains(kept.launch)).collect()
            };
            drop(self.change(of_launch));
        }
    }
}

/// The argument words, of the `line` or the first bytes of a message.
fn argument_words(
    head: &BytesHead,
    line: &[u64],
    read: &mut impl FnMut(usize, usize, &mut Vec<u8>),
) -> ArgumentWords {
    if head.words_end() == 0 {
        return ArgumentWords::from_slice(&line[..head.argument_words.into()]);
    }
    let mut first = Vec::new();
    read(0, head.words_end(), &mut first);
    first.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Bytes of a message that lie in the lane's share of the byte area, or in memory that the lane lends.
pub(crate) struct Unread {
    /// The large area, if it is not the slot's own.
    pub area: Option<u32>,
    /// Where they begin in the share, and how many there are.
    pub from: usize,
    pub bytes: usize,
    /// Where the lane has them in the device's memory, if that is not 0.
    pub lent_at: u64,
    /// What the lane left behind.
    pub before: Option<Kept>,
}

/// A whole message.
pub(crate) struct Message {
    pub words: ArgumentWords,
    pub bytes: Vec<u8>,
    /// Held while the handler has the message.
    pub charge: Charge,
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_channel::host::{Loan, LoanMemory, ProcessLoans};

    const KEY: LaneKey = (3, 4);
    const LAUNCH: LaunchId = LaunchId::new(1, 1);

    fn head(begins: bool, piece_bytes: u32, total_bytes: u64) -> BytesHead {
        BytesHead {
            begins,
            piece_bytes,
            area: None,
            total_bytes,
            argument_words: 3,
            reply_capacity: 0,
            bytes_at: 0,
            reply_at: ReplyAt::NONE,
        }
    }

    fn messages(most: usize) -> Messages {
        Messages::new(Budget::new(most, 100), LoanPool::new(Box::new(ProcessLoans)), 8)
    }

    fn read(_: usize, count: usize, to: &mut Vec<u8>) {
        to.resize(to.len() + count, 7);
    }

    /// Memory of a device that a copy of the host's reaches at one address.
    struct Reached;

    impl LoanMemory for Reached {
        fn allocate(&self, _: usize) -> Vec<Loan> {
            Vec::new()
        }

        fn copy_to_lane(&self, bytes: &[u8], address: u64) -> bool {
            bytes.len() >= LEAST_REPLY_TO_PUT && address == 64
        }
    }

    #[test]
    fn replies_are_put_where_lanes_want_them_until_lanes_may_be_gone() {
        let messages = Messages::new(Budget::new(1, 1), LoanPool::new(Box::new(Reached)), 8);
        let reply = [0; 3 * LEAST_REPLY_TO_PUT];
        assert!(messages.copy_to_lane(&reply, 64, 1) && messages.copy_to_lane(&reply, 64, 3));
        // Nowhere; more lanes than it is worth for; not the device's memory; too short.
        assert!(!messages.copy_to_lane(&reply, 0, 1) && !messages.copy_to_lane(&reply, 64, 4));
        assert!(!messages.copy_to_lane(&reply, 65, 1) && !messages.copy_to_lane(&reply[..511], 64, 1));
        // Others are being put: a short reply is read sooner than these are through.
        let before = reply.len() / BYTES_A_COPY;
        messages.copying.store(before, Ordering::Relaxed);
        assert!(!messages.copy_to_lane(&reply, 64, 1));
        assert!(messages.copy_to_lane(&[0; 2 * 3 * LEAST_REPLY_TO_PUT], 64, 1));
        messages.copying.store(0, Ordering::Relaxed);
        messages.end_copies();
        assert!(!messages.copy_to_lane(&reply, 64, 1));
    }

    #[test]
    fn an_interrupted_message_does_not_spoil_the_next_one() {
        let messages = messages(1000);
        let take =
            |head: &BytesHead, is_last| messages.take_piece(KEY, LAUNCH, (head, &[0; 2]), 32, is_last, read);
        assert!(take(&head(true, 32, 56), false).unwrap().is_none());
        // The lane was told of an error elsewhere, and begins anew.
        assert!(take(&head(true, 32, 40), false).unwrap().is_none());
        let message = take(&head(false, 8, 40), true).unwrap().expect("it is whole");
        assert_eq!((&*message.words, &*message.bytes), (&[0x0707_0707_0707_0707; 3][..], &[7; 16][..]));
        // A piece that continues nothing.
        assert_eq!(take(&head(false, 8, 40), true).err(), Some(CallError::Malformed));
        drop(message.charge);
        assert_eq!(messages.budget.held(), 0);
    }

    #[test]
    fn few_argument_words_come_with_the_head() {
        let messages = messages(1000);
        let of = |argument_words, piece_bytes, total_bytes, bytes_at| {
            let head = head(true, piece_bytes, total_bytes);
            let head = BytesHead { argument_words, bytes_at, ..head };
            let whole = messages.take_whole(KEY, (&head, &[8, 9]), 32, read);
            let whole = whole.map(|(words, _, unread)| (words.to_vec(), unread.from, unread.bytes));
            let piece = messages.take_piece(KEY, LAUNCH, (&head, &[8, 9]), 32, true, read);
            let piece = piece.ok().flatten();
            (whole.ok(), piece.map(|message| (message.words.to_vec(), message.bytes)))
        };
        let sevens = vec![0x0707_0707_0707_0707; 3];
        assert_eq!(of(2, 16, 16, 0), (Some((vec![8, 9], 0, 16)), Some((vec![8, 9], vec![7; 16]))));
        assert_eq!(of(1, 0, 0, 0), (Some((vec![8], 0, 0)), Some((vec![8], vec![]))));
        assert_eq!(of(0, 8, 8, 0), (Some((vec![], 0, 8)), Some((vec![], vec![7; 8]))));
        assert_eq!(of(3, 32, 32, 0), (Some((sevens.clone(), 24, 8)), Some((sevens.clone(), vec![7; 8]))));
        // The bytes are lent.
        assert_eq!(of(2, 0, 5000, 64).0, None);
        assert_eq!(of(2, 0, 60, 64).0, Some((vec![8, 9], 0, 60)));
        assert_eq!(of(3, 24, 84, 64).0, Some((sevens, 24, 60)));
        // Less than the words, or not what was said.
        for (argument_words, piece, total) in [(3, 8, 8), (3, 24, 16), (2, 8, 16), (2, 16, 8)] {
            assert_eq!(of(argument_words, piece, total, 0), (None, None));
        }
    }

    #[test]
    fn lanes_together_hold_no_more_than_the_budget() {
        let messages = messages(40);
        let take =
            |lane, head: &BytesHead| messages.take_piece((0, lane), LAUNCH, (head, &[0; 2]), 48, false, read);
        assert!(take(0, &head(true, 48, 100)).is_ok());
        assert_eq!(take(1, &head(true, 48, 100)).err(), Some(CallError::Busy));
        assert_eq!(take(2, &head(true, 48, 101)).err(), Some(CallError::TooLarge));
        assert_eq!(messages.budget.held(), 24);
        messages.forget(1);
        assert_eq!(messages.budget.held(), 24);
        messages.forget(0);
        assert_eq!(messages.budget.held(), 0);
        assert!(take(1, &head(true, 48, 100)).is_ok());
        messages.forget_launches(&LaunchId::new(2, 1).into());
        assert_eq!(messages.budget.held(), 24);
        messages.forget_launches(&LAUNCH.into());
        assert_eq!(messages.budget.held(), 0);
    }

    #[test]
    fn a_reply_is_kept_until_its_lane_calls_again_or_its_launch_ends() {
        let messages = messages(100);
        let lend = |lane| messages.loan(60).map(|loan| messages.lend((0, lane), LAUNCH, loan));
        assert_ne!(lend(1), Ok(0));
        assert_eq!(lend(2), Err(CallError::Busy));
        let line = (&head(false, 0, 0), &[0; 2][..]);
        let empty = |lane| messages.take_piece((0, lane), LAUNCH, line, 8, true, read).err();
        assert_eq!(empty(1), Some(CallError::Malformed));
        assert_eq!(messages.budget.held(), 0);
        assert!(lend(2).is_ok());
        messages.forget_launches(&LAUNCH.into());
        assert_eq!(messages.budget.held(), 0);
        assert!(lend(3).is_ok());
        messages.forget(0);
        assert_eq!(messages.budget.held(), 0);
    }
}
