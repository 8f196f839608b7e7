//! What travels: a question, which is a batch of calls of one method, and its answer. Both ends take what comes for an
//! allegation: lengths are checked before anything is read, and a message that is longer or shorter than it says is none.
//!
//! All numbers are little-endian. The first 32 bytes are the same in each version, so that an answerer of another version can
//! say so to each lane.
//!
//! | byte | question | answer |
//! |---|---|---|
//! | 0 | the letters `hcrm` | the same |
//! | 4 | version, 16 bits: 1 | the same |
//! | 6 | argument words of a call, 16 bits | result words |
//! | 8 | how many calls, 32 bits | the same number |
//! | 12 | 0, 32 bits; 1: nobody waits any more for the answer to this question, and the message ends after 32 bytes | 0 |
//! | 16 | the batch's number, which goes up in a process | the question's |
//! | 24 | which process it is: a number that no other process has | the question's |
//! | 32 | the hash of the method's name and types | for each call its status, 64 bits |
//! | 40 | for each call 32 bits each: µs that its lane waits longer (0: no end, or more than 32 bits have: 71 minutes), its lane | |
//! | then | the words of the first call, of the second, ... | the same |
//!
//! This page is for answerers in other languages too (`hostcall.remote` in Python is one).
//! `tests/messages.json` has messages that the tests of each of them read and write.
//!
//! # Words, statuses and hashes
//! Words are those of [`hostcall_abi::wire::Wire`], and a status is [`Status::to_bits`]. The hash is
//! [`hostcall_abi::schema::of_method`]'s, of a name such as `Features::of`. A call that did not end with `Ok`
//! has words too, which mean nothing. An answer without a result may say that it has 0 words a call.
//!
//! # Keys
//! A question is the payload of a query of zenoh's, of which the target is `BestMatching`, and its answer
//! that of the query's one reply, whose key is the question's. An answerer declares `hostcall/JOB/NAME/**` as
//! a complete queryable.
//!
//! | key | what |
//! |---|---|
//! | `hostcall/JOB/NAME/Features/of` | questions to the method `Features::of` of what is exported as NAME |
//! | `hostcall/JOB/NAME/-askers-/PROCESS` | liveliness token of a process that asks: its number, hexadecimal |
//!
//! That nobody waits any more is a query to all who answer (`All`), which nobody replies to.
//!
//! # What an answerer does with a question
//! 1. One that is no message is dropped: the query ends without a reply. Another version is refused with
//!    `TypeMismatch`, a method that it does not have with `NoSuchService`, another hash with `TypeMismatch`:
//!    a status for each call, and 0 words.
//! 2. A number of a process that was here before is dropped: it never runs twice. Numbers come in about their
//!    order. Of a process the highest is kept, and which of the 8,191 below it were here; older ones count as
//!    such.
//! 3. With as many questions or bytes as it may have, each call gets `Busy`.
//! 4. Each call gets one status. One that is answered after its lane's time is up gets `TimedOut`.
//! 5. The query is dropped without a reply when the time of all its lanes is up, when a message says that
//!    nobody waits, and when the token of the process that asked is gone.

use hostcall_abi::status::Status;
use hostcall_abi::word::MAX_TYPED_WORDS;
use std::time::Duration;

const MAGIC: [u8; 4] = *b"hcrm";

/// The version of the messages. Another one is refused with `TypeMismatch`.
pub const VERSION: u16 = 1;

/// Most calls of a message.
pub const MAX_CALLS: usize = 1 << 16;

/// Most bytes of a question.
pub const MAX_BYTES: usize = HEAD + 8 + MAX_CALLS * 8 + (MAX_WORDS_TOGETHER * 8);

/// Most argument words of a message. Each of its calls may have as many result words as a call may have.
pub(crate) const MAX_WORDS_TOGETHER: usize = 1 << 20;

const HEAD: usize = 32;

/// Where a head says what a message is, and what it says where nobody waits any more.
const KIND_AT: usize = 12;
const UNWANTED: u32 = 1;

/// What is the same in messages of all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The version.
    pub version: u16,
    /// Words of each call.
    pub width: u16,
    /// How many calls.
    pub count: u32,
    /// The number of the batch.
    pub batch: u64,
    /// The process that calls.
    pub process: u64,
}

/// A call, as a question tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How much longer its lane waits; `None` for as long as it takes.
    pub remaining: Option<Duration>,
    /// Its lane's place in its wave.
    pub lane: u8,
}

/// A batch of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who asks, and how much.
    pub head: Head,
    /// The hash of the method's name and types.
    pub schema: u64,
    /// The calls.
    pub calls: Vec<Asked>,
    /// Their argument words, those of one call side by side.
    pub words: Vec<u64>,
}

/// The answers of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The question's, with the number of result words.
    pub head: Head,
    /// How each call ended.
    pub statuses: Vec<Status>,
    /// The calls' result words, those of one call side by side.
    pub words: Vec<u64>,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// They do not decode.
    Malformed,
    /// They are one of another version, that begins so.
    OtherVersion(Head),
}

/// Reads numbers off the front of bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Bad::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, Bad> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Bad> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Bad> {
        self.take().map(u64::from_le_bytes)
    }

    fn head(&mut self) -> Result<Head, Bad> {
        if self.take()? != MAGIC {
            return Err(Bad::Malformed);
        }
        let (version, width, count) = (self.u16()?, self.u16()?, self.u32()?);
        let zero = self.u32()?;
        let head = Head { version, width, count, batch: self.u64()?, process: self.u64()? };
        if count == 0 || count as usize > MAX_CALLS {
            return Err(Bad::Malformed);
        }
        if version != VERSION {
            return Err(Bad::OtherVersion(head));
        }
        if zero != 0 || usize::from(width) > MAX_TYPED_WORDS {
            return Err(Bad::Malformed);
        }
        Ok(head)
    }

    /// Reads all that is left, which is so many words.
    fn words(self, count: usize) -> Result<Vec<u64>, Bad> {
        if self.0.len() != count * 8 {
            return Err(Bad::Malformed);
        }
        let (words, _) = self.0.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

impl Head {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&self.version.to_le_bytes());
        to.extend_from_slice(&self.width.to_le_bytes());
        to.extend_from_slice(&self.count.to_le_bytes());
        to.extend_from_slice(&[0; 4]);
        to.extend_from_slice(&self.batch.to_le_bytes());
        to.extend_from_slice(&self.process.to_le_bytes());
    }

    /// Returns how many words all calls have.
    fn words(&self) -> usize {
        self.count as usize * usize::from(self.width)
    }
}

fn put_words(to: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
}

/// Returns the message with a question. `words` and `calls` are as many as the head says.
pub(crate) fn question(
    head: &Head,
    schema: u64,
    calls: impl ExactSizeIterator<Item = Asked>,
    words: &[u64],
) -> Vec<u8> {
    debug_assert_eq!((calls.len(), words.len()), (head.count as usize, head.words()));
    let mut bytes = Vec::with_capacity(HEAD + 8 + 8 * (calls.len() + words.len()));
    head.put(&mut bytes);
    bytes.extend_from_slice(&schema.to_le_bytes());
    for Asked { remaining, lane } in calls {
        let us = remaining.map_or(0, |left| match left.as_micros() {
            // Its time is up.
            0 => 1,
            // Its own process alone ends a longer wait.
            us => u32::try_from(us).unwrap_or(0),
        });
        bytes.extend_from_slice(&(u64::from(us) | u64::from(lane) << 32).to_le_bytes());
    }
    put_words(&mut bytes, words);
    bytes
}

impl Head {
    /// Returns the message that nobody waits any more for the answer to the question that began so.
    pub fn unwanted(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD);
        self.put(&mut bytes);
        bytes[KIND_AT..][..4].copy_from_slice(&UNWANTED.to_le_bytes());
        bytes
    }

    /// Returns the head of the question for whose answer nobody waits any more, if the message says so.
    pub fn of_unwanted(message: &[u8]) -> Option<Self> {
        let mut head = *message.first_chunk::<HEAD>().filter(|_| message.len() == HEAD)?;
        if head[KIND_AT..][..4] != UNWANTED.to_le_bytes() {
            return None;
        }
        head[KIND_AT..][..4].fill(0);
        Reader(&head).head().ok()
    }
}

impl Question {
    /// Returns the message. `words` and `calls` are as many as the head says.
    pub fn encode(&self) -> Vec<u8> {
        question(&self.head, self.schema, self.calls.iter().copied(), &self.words)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// When it is none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Bad> {
        let mut reader = Reader(bytes);
        let head = reader.head()?;
        let schema = reader.u64()?;
        // Before there is memory for them.
        let is_whole = reader.0.len() == 8 * (head.count as usize + head.words());
        if !is_whole || head.words() > MAX_WORDS_TOGETHER {
            return Err(Bad::Malformed);
        }
        let mut calls = Vec::with_capacity(head.count as usize);
        for _ in 0..head.count {
            let (us, lane) = (reader.u32()?, reader.u32()?);
            let remaining = (us > 0).then(|| Duration::from_micros(us.into()));
            calls.push(Asked { remaining, lane: u8::try_from(lane).map_err(|_| Bad::Malformed)? });
        }
        Ok(Self { head, schema, calls, words: reader.words(head.words())? })
    }
}

impl Answer {
    /// Returns the answer to a question that has no results.
    pub fn all(head: Head, status: Status) -> Self {
        let statuses = vec![status; head.count as usize];
        Self { head: Head { version: VERSION, width: 0, ..head }, statuses, words: Vec::new() }
    }

    /// Returns the message. `words` and `statuses` are as many as the head says.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert_eq!(
            (self.statuses.len(), self.words.len()),
            (self.head.count as usize, self.head.words())
        );
        let mut bytes = Vec::with_capacity(HEAD + 8 * (self.statuses.len() + self.words.len()));
        self.head.put(&mut bytes);
        self.statuses.iter().for_each(|status| bytes.extend_from_slice(&status.to_bits().to_le_bytes()));
        put_words(&mut bytes, &self.words);
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// When it is none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Bad> {
        let mut reader = Reader(bytes);
        let head = reader.head()?;
        // Before there is memory for them.
        if reader.0.len() != 8 * (head.count as usize + head.words()) {
            return Err(Bad::Malformed);
        }
        let mut statuses = Vec::with_capacity(head.count as usize);
        for _ in 0..head.count {
            statuses.push(Status::from_bits(reader.u64()?));
        }
        Ok(Self { head, statuses, words: reader.words(head.words())? })
    }

    /// Returns whether this answers a question that began so.
    pub fn is_to(&self, asked: &Head) -> bool {
        (self.head.count, self.head.batch, self.head.process) == (asked.count, asked.batch, asked.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_abi::CallError;

    fn question(count: u32, width: u16) -> Question {
        let head = Head { version: VERSION, width, count, batch: 7, process: 9 };
        let call = |i: u32| Asked {
            remaining: (!i.is_multiple_of(3)).then(|| Duration::from_micros(u64::from(i))),
            lane: i as u8 % 64,
        };
        let words = (0..count as usize * usize::from(width)).map(|word| word as u64 * 0x0101_0101).collect();
        Question { head, schema: 0x1234_5678_9abc_def0, calls: (0..count).map(call).collect(), words }
    }

    fn answer(count: u32, width: u16) -> Answer {
        let question = question(count, width);
        let status = |i| match i % 3 {
            0 => Status::Ok,
            1 => Status::Error(CallError::Failed(-5)),
            _ => Status::Error(CallError::Busy),
        };
        let head = question.head;
        Answer { head, statuses: (0..count).map(status).collect(), words: question.words }
    }

    #[test]
    fn messages_survive_the_wire() {
        for (count, width) in [(1, 0), (1, 1), (33, 7), (1024, 1), (1000, 64)] {
            let question = question(count, width);
            assert_eq!(Question::decode(&question.encode()), Ok(question));
            let answer = answer(count, width);
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    /// Each prefix, one byte too many, and each byte that is another one: none of them is read past its end, and what is read
    /// is a message again.
    #[test]
    fn what_is_no_message_is_refused() {
        let question = question(5, 2).encode();
        let answer = answer(5, 2).encode();
        for len in 0..question.len() {
            assert!(Question::decode(&question[..len]).is_err(), "{len}");
        }
        for len in 0..answer.len() {
            assert!(Answer::decode(&answer[..len]).is_err(), "{len}");
        }
        assert_eq!(Question::decode(&[&question[..], &[0]].concat()), Err(Bad::Malformed));
        assert_eq!(Answer::decode(&[&answer[..], &[0]].concat()), Err(Bad::Malformed));
        for at in 0..question.len() {
            for bit in 0..8 {
                let mut other = question.clone();
                other[at] ^= 1 << bit;
                if let Ok(read) = Question::decode(&other) {
                    assert_eq!(Question::decode(&read.encode()), Ok(read));
                }
                let mut other = answer.clone();
                if at < other.len() {
                    other[at] ^= 1 << bit;
                    if let Ok(read) = Answer::decode(&other) {
                        assert_eq!(Answer::decode(&read.encode()), Ok(read));
                    }
                }
            }
        }
    }

    #[test]
    fn a_lane_that_waits_longer_than_a_message_says_waits_without_end() {
        let longest = Duration::from_micros(u32::MAX.into());
        let us = Duration::from_micros(1);
        for (waits, told) in
            [(Duration::ZERO, Some(us)), (us, Some(us)), (longest, Some(longest)), (longest + us, None)]
        {
            let mut question = question(1, 0);
            question.calls[0].remaining = Some(waits);
            assert_eq!(Question::decode(&question.encode()).unwrap().calls[0].remaining, told);
        }
    }

    #[test]
    fn that_nobody_waits_is_another_message() {
        let question = question(3, 1);
        let unwanted = question.head.unwanted();
        assert_eq!(Head::of_unwanted(&unwanted), Some(question.head));
        assert_eq!(Question::decode(&unwanted), Err(Bad::Malformed));
        assert_eq!(Head::of_unwanted(&question.encode()), None);
        for len in 0..unwanted.len() {
            assert_eq!(Head::of_unwanted(&unwanted[..len]), None);
        }
        assert_eq!(Head::of_unwanted(&[&unwanted[..], &[0]].concat()), None);
    }

    /// A question of as many calls as there may be is answered, however many result words they have.
    #[test]
    fn an_answer_has_more_words_than_a_question() {
        let most = (MAX_WORDS_TOGETHER / MAX_CALLS) as u16;
        let whole = question(MAX_CALLS as u32, most).encode();
        assert_eq!(whole.len(), MAX_BYTES);
        assert!(Question::decode(&whole).is_ok());
        let more = question(MAX_CALLS as u32, most + 1).encode();
        assert_eq!(Question::decode(&more), Err(Bad::Malformed));
        assert!(Answer::decode(&answer(MAX_CALLS as u32, MAX_TYPED_WORDS as u16).encode()).is_ok());
    }

    /// No memory is taken for what a head says and the message does not have.
    #[test]
    fn a_head_that_says_too_much_is_refused() {
        for (count, width) in
            [(0, 1), (u32::MAX, 1), (MAX_CALLS as u32 + 1, 0), (1, 65), (MAX_CALLS as u32, 64)]
        {
            let mut bytes = question(1, 1).encode();
            bytes[6..8].copy_from_slice(&u16::to_le_bytes(width));
            bytes[8..12].copy_from_slice(&u32::to_le_bytes(count));
            assert_eq!(Question::decode(&bytes), Err(Bad::Malformed), "{count} {width}");
        }
    }

    #[test]
    fn another_version_tells_its_head() {
        let mut bytes = question(3, 1).encode();
        bytes[4] = 9;
        let Err(Bad::OtherVersion(head)) = Question::decode(&bytes) else {
            panic!("it is of another version")
        };
        assert_eq!((head.version, head.count, head.batch, head.process), (9, 3, 7, 9));
        let refusal = Answer::all(head, Status::Error(CallError::TypeMismatch));
        assert!(Answer::decode(&refusal.encode()).is_ok_and(|answer| answer.is_to(&question(3, 1).head)));
    }
}
