//! What comes as posts in pieces: panics whose messages the host formats (`hostcall_format::unformatted`), texts that a call
//! is about, which the lane makes next, and checks of kernels of others that have failed.

use super::foreign::{Checks, FailedCheck};
use super::system::{Panic, Reports};
use crate::engine::rare::MayBeEmpty;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::service::{Method, number};
use hostcall_abi::status::CallError;
use hostcall_format::unformatted::{self, LAST, MOST_PIECES, PIECE_BYTES};
use hostcall_service::{Caller, Reply, Request, Service};
use std::collections::HashMap;
use std::sync::Arc;

/// Texts that wait for their calls, all launches together: as many as lanes that a device runs at the same time.
const MOST_TEXTS: usize = 1 << 20;

/// What has come so far.
#[derive(Default)]
pub(super) struct Begun {
    /// What of which posts are still to come, by lane: a ring has the posts of a lane in their order.
    pieces: HashMap<(LaunchId, u32, u8), Vec<u8>>,
    /// Whole texts, by the names that their lanes have in their calls.
    texts: HashMap<(LaunchId, u64), String>,
}

impl MayBeEmpty for Begun {
    fn has_some(&self) -> bool {
        self.pieces.has_some() || self.texts.has_some()
    }
}

impl Begun {
    /// Adds the words of a post, and returns all bytes if it was the last one. A post that is not the next one of its lane
    /// ends what there was.
    fn add(&mut self, from: Caller, extra: u32, words: &[u64]) -> Option<Vec<u8>> {
        let key = (from.launch, from.slot, from.lane);
        let (piece, count) = (extra & 0xffff, extra as usize >> 16 & 0xff);
        let mut bytes = if piece == 0 { Vec::new() } else { self.pieces.remove(&key)? };
        let is_next = bytes.len() == piece as usize * PIECE_BYTES && piece < MOST_PIECES;
        let is_whole = count == PIECE_BYTES || extra & LAST != 0 && count < PIECE_BYTES;
        if !is_next || !is_whole || words.len() * 8 != PIECE_BYTES {
            return None;
        }
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(count));
        if extra & LAST != 0 {
            return Some(bytes);
        }
        self.pieces.insert(key, bytes);
        None
    }

    /// Drops what there is of a launch that has ended: its lanes were ended before they had posted all.
    pub fn forget(&mut self, launch: LaunchId) {
        self.pieces.retain(|(of, ..), _| *of != launch);
        self.texts.retain(|(of, _), _| *of != launch);
    }

    /// Keeps a text for the call that is about it. A lane has one; who names ever more lanes has no more kept.
    fn keep(&mut self, launch: LaunchId, bytes: &[u8]) {
        let Some((lane, text)) = bytes.split_first_chunk() else { return };
        let is_full = self.texts.len() >= MOST_TEXTS;
        if let (Ok(text), false) = (std::str::from_utf8(text), is_full) {
            self.texts.insert((launch, u64::from_le_bytes(*lane)), text.to_owned());
        }
    }

    /// Takes the text of the lane with this name.
    pub fn take_text(&mut self, launch: LaunchId, lane: u64) -> Option<String> {
        self.texts.remove(&(launch, lane))
    }
}

/// The handler of such posts.
pub(super) struct InPieces(pub Reports, pub Arc<Checks>);

impl Service for InPieces {
    fn methods(&self) -> &[Method] {
        // No schema: a post's extra bits say which piece it is.
        const {
            &[
                Method::untyped("System::panic_words", number::PANIC),
                Method::untyped("System::text", number::TEXT),
                Method::untyped("Foreign::check", number::CHECK),
            ]
        }
    }

    fn call(&self, _: usize, _: Request<'_>, _: &mut dyn Reply) -> Result<(), CallError> {
        Err(CallError::TypeMismatch)
    }

    fn post(&self, method: usize, extra: u32, request: Request<'_>) {
        let from = request.caller;
        let Some(bytes) = self.0.change_begun(|begun| begun.add(from, extra, request.words)) else { return };
        match self.methods()[method].number() {
            number::TEXT => return self.0.change_begun(|begun| begun.keep(from.launch, &bytes)),
            number::CHECK => {
                let check = FailedCheck::from_bytes(&bytes, from.launch, from.lane);
                return check.into_iter().for_each(|check| self.1.has_failed(check));
            }
            _ => {}
        }
        let Some(panic) = unformatted::panic(&bytes) else { return };
        let [line, column, lane, workgroup, width, height] = panic.head;
        let (width, height) = (width.max(1), height.max(1));
        let workgroup = [workgroup % width, workgroup / width % height, workgroup / width / height];
        let (message, file) = (panic.message, panic.file.to_owned());
        self.0.add_panic(from.launch, Panic { message, file, line, column, workgroup, lane });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// The posts of a panic: their extra bits and words.
    fn posts(panic: &[u8]) -> Vec<(u32, Vec<u64>)> {
        let pieces = panic.chunks(PIECE_BYTES);
        let last = pieces.len() - 1;
        let post = |(i, piece): (usize, &[u8])| {
            let mut bytes = piece.to_vec();
            bytes.resize(PIECE_BYTES, 0);
            let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let is_last = if i == last { LAST } else { 0 };
            (i as u32 | (piece.len() as u32) << 16 | is_last, words)
        };
        pieces.enumerate().map(post).collect()
    }

    fn panic(lane: u32, message: &str) -> Vec<u8> {
        let head = [5, 6, lane, 11, 4, 2].map(u32::to_le_bytes).concat();
        let text = |text: &str| [&(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
        [head, text("main.rs"), vec![unformatted::TEXT], text(message)].concat()
    }

    #[test]
    fn lanes_panics_come_in_turn_and_each_is_one() {
        let panics = InPieces(Reports::default(), Arc::default());
        let launch = LaunchId::new(1, 1);
        let post = |lane, (extra, words): &(u32, Vec<u64>)| {
            let caller = Caller { launch, slot: 3, lane };
            panics.post(0, *extra, Request { words, bytes: &[], reply_capacity: 0, caller });
        };
        let long = "x".repeat(100);
        let (first, second) = (posts(&panic(1, &long)), posts(&panic(2, "short")));
        post(1, &first[0]);
        post(2, &second[0]);
        post(1, &first[1]);
        post(2, &second[1]);
        for more in &first[2..] {
            post(1, more);
        }
        // One that begins anew, one without a begin, and one of which a piece is missing.
        post(1, &first[0]);
        post(1, &second[0]);
        post(1, &second[1]);
        post(4, &first[1]);
        post(5, &first[0]);
        post(5, &first[2]);
        post(6, &first[0]);
        let report = panics.0.take(launch);
        let said = "lane 2 of workgroup (3, 0, 1) panicked at main.rs:5:6: short";
        assert_eq!((report.panic.unwrap().to_string(), report.other_panics), (said.to_owned(), 2));
        assert!(panics.0.change_begun(|begun| !begun.has_some()));
    }

    #[test]
    fn a_check_is_its_place_and_condition() {
        let service = InPieces(Reports::default(), Arc::default());
        let (launch, condition) = (LaunchId::new(1, 1), "x".repeat(100));
        let head = [7, 4, 1, 2, 3, 4, 5, 6, condition.len() as u32, 0].map(u32::to_le_bytes).concat();
        let whole = [&head[..], b"a.cu", condition.as_bytes()].concat();
        for bytes in [&whole[..], &whole[..whole.len() - 1], &whole[..39], &whole] {
            for (extra, words) in posts(bytes) {
                let caller = Caller { launch, slot: 3, lane: 1 };
                service.post(2, extra, Request { words: &words, bytes: &[], reply_capacity: 0, caller });
            }
        }
        let file = "a.cu".to_owned();
        let (block, thread, kernel) = ([1, 2, 3], [4, 5, 6], "a kernel".into());
        let check =
            FailedCheck { condition, file, line: 7, block, thread, lane: 1, count: 2, launch, kernel };
        assert_eq!(service.1.take(launch), [check]);
    }

    #[test]
    fn a_text_waits_for_the_call_of_its_lane() {
        let service = InPieces(Reports::default(), Arc::default());
        let launch = LaunchId::new(1, 1);
        let text = "x".repeat(100);
        let bytes = |lane: u64, text: &[u8]| [&lane.to_le_bytes()[..], text].concat();
        let post = |lane, bytes: &[u8]| {
            let caller = Caller { launch, slot: 3, lane };
            for (extra, words) in posts(bytes) {
                service.post(1, extra, Request { words: &words, bytes: &[], reply_capacity: 0, caller });
            }
        };
        let take = |launch, lane| service.0.change_begun(|begun| begun.take_text(launch, lane));
        post(1, &bytes(7, text.as_bytes()));
        post(2, &bytes(8, b"other"));
        assert_eq!(take(launch, 7), Some(text.clone()));
        assert_eq!(take(launch, 7), None);
        assert_eq!(take(LaunchId::new(2, 1), 8), None);
        // No text, and one that a lane posts in the place of another.
        for bytes in [bytes(9, b"\xff"), vec![1, 2], bytes(8, b"")] {
            post(3, &bytes);
        }
        assert_eq!([take(launch, 9), take(launch, 8)], [None, Some(String::new())]);
        post(1, &bytes(7, text.as_bytes()));
        service.0.take(launch);
        assert!(service.0.change_begun(|begun| !begun.has_some()));
    }
}
