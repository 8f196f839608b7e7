//! What comes as posts in pieces: panics whose messages the host formats and printed lines with texts
//! (`hostcall_format::unformatted`), texts that a call is about, which the lane makes next, and checks of kernels of others that
//! have failed.

use super::foreign::{Checks, FailedCheck};
use super::print::Printer;
use super::system::{Panic, Reports};
use crate::engine::rare::MayBeEmpty;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::service::{Method, number};
use hostcall_abi::status::CallError;
use hostcall_abi::word::Owner;
use hostcall_format::unformatted::{
    self, LAST, LINE_HEAD_BYTES, MOST_LINE_BYTES, MOST_PIECES, PIECE_BYTES, next_piece,
};
use hostcall_service::{Caller, Posts, Reply, Request, Service};
use std::collections::HashMap;
use std::sync::Arc;

/// Texts that wait for their calls, all launches together: as many as lanes that a device runs at the same time.
const MOST_TEXTS: usize = 1 << 20;

/// Bytes of which posts are still to come, all launches together: 1 KiB of each lane that a large GPU runs at the same time.
const MOST_BYTES: usize = 256 << 20;

/// A message of which posts are still to come.
struct Part {
    bytes: Vec<u8>,
    /// The next post's number.
    next: u32,
}

/// What has come so far.
#[derive(Default)]
pub(super) struct Begun {
    /// By lane: a ring has the posts of a lane in their order.
    parts: HashMap<(LaunchId, u32, u8), Part>,
    /// The bytes of those.
    bytes: usize,
    /// Whole texts, by the names that their lanes have in their calls.
    texts: HashMap<(LaunchId, u64), String>,
}

impl MayBeEmpty for Begun {
    fn has_some(&self) -> bool {
        self.parts.has_some() || self.texts.has_some()
    }
}

/// What a post was for its lane's message.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// A part.
    Part,
    /// The last one: all of the message.
    Whole(Vec<u8>),
    /// No part of it, or one of a message that was given up.
    Nothing,
    /// More than there is room for. The message is given up, of which this came before.
    TooMuch(Vec<u8>),
}

impl Begun {
    /// Adds the words of a post to its lane's message, which has at most so many bytes. A post that is not the lane's next one
    /// ends what there was.
    fn add(&mut self, from: Caller, extra: u32, words: &[u64], most: usize) -> Came {
        let key = (from.launch, from.slot, from.lane);
        let (piece, count, is_last) = (extra & 0xffff, extra as usize >> 16 & 0xff, extra & LAST != 0);
        let before = self.parts.remove(&key);
        self.bytes -= before.as_ref().map_or(0, |part| part.bytes.len());
        let mut part = match before {
            _ if piece == 0 => Part { bytes: Vec::new(), next: 0 },
            Some(part) if part.next == piece => part,
            _ => return Came::Nothing,
        };
        if words.len() * 8 != PIECE_BYTES || count > PIECE_BYTES || count < PIECE_BYTES && !is_last {
            return Came::Nothing;
        }
        if part.bytes.len() + count > most || self.bytes + part.bytes.len() + count > MOST_BYTES {
            return Came::TooMuch(part.bytes);
        }
        part.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(count));
        if is_last {
            return Came::Whole(part.bytes);
        }
        part.next = next_piece(piece);
        self.bytes += part.bytes.len();
        self.parts.insert(key, part);
        Came::Part
    }

    /// Drops what there is of a launch that has ended: its lanes were ended before they had posted all.
    pub fn forget(&mut self, launch: LaunchId) {
        let dropped = self.parts.extract_if(|(of, ..), _| *of == launch).map(|(_, part)| part.bytes.len());
        self.bytes -= dropped.sum::<usize>();
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
pub(super) struct InPieces {
    pub reports: Reports,
    pub checks: Arc<Checks>,
    pub printer: Arc<Printer>,
}

impl InPieces {
    fn add(&self, from: Caller, extra: u32, words: &[u64], most: usize) -> Came {
        self.reports.change_begun(|begun| begun.add(from, extra, words, most))
    }

    /// Handles a post of a printed line.
    fn line(&self, from: Caller, wave: Option<Owner>, extra: u32, words: &[u64]) {
        match self.add(from, extra, words, LINE_HEAD_BYTES + MOST_LINE_BYTES) {
            Came::Part | Came::Nothing => {}
            Came::Whole(line) => self.printer.print_line(wave, &line),
            Came::TooMuch(line) => self.printer.line_given_up(&line),
        }
    }
}

impl Service for InPieces {
    fn methods(&self) -> &[Method] {
        // No schema: a post's extra bits say which piece it is.
        const {
            &[
                Method::untyped("System::panic_words", number::PANIC),
                Method::untyped("System::text", number::TEXT),
                Method::untyped("Foreign::check", number::CHECK),
                Method::untyped("System::line", number::LINE),
            ]
        }
    }

    fn call(&self, _: usize, _: Request<'_>, _: &mut dyn Reply) -> Result<(), CallError> {
        Err(CallError::TypeMismatch)
    }

    fn posts(&self, method: usize, posts: &mut Posts<'_>) -> usize {
        if self.methods()[method].number() != number::LINE {
            posts.one_by_one(self, method);
            return 0;
        }
        let (extra, wave) = (posts.extra(), posts.wave());
        let may_decline = posts.may_decline() && extra & LAST != 0;
        posts.for_each_taken(|words, from| {
            if may_decline && self.printer.is_full(from.launch) {
                return false;
            }
            self.line(from, Some(wave), extra, words);
            true
        });
        0
    }

    fn post(&self, method: usize, extra: u32, request: Request<'_>) {
        let (from, number) = (request.caller, self.methods()[method].number());
        if number == number::LINE {
            return self.line(from, None, extra, request.words);
        }
        let Came::Whole(bytes) = self.add(from, extra, request.words, MOST_PIECES as usize * PIECE_BYTES)
        else {
            return;
        };
        match number {
            number::TEXT => return self.reports.change_begun(|begun| begun.keep(from.launch, &bytes)),
            number::CHECK => {
                let check = FailedCheck::from_bytes(&bytes, from.launch, from.lane);
                return check.into_iter().for_each(|check| self.checks.has_failed(check));
            }
            _ => {}
        }
        let Some(panic) = unformatted::panic(&bytes) else { return };
        let [line, column, lane, workgroup, width, height] = panic.head;
        let (width, height) = (width.max(1), height.max(1));
        let workgroup = [workgroup % width, workgroup / width % height, workgroup / width / height];
        let (message, file) = (panic.message, panic.file.to_owned());
        self.reports.add_panic(from.launch, Panic { message, file, line, column, workgroup, lane });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::sink::Sink;
    use crate::services::stdio::Stdio;
    use crate::services::testing::Capture;
    use hostcall_abi::word::{PAYLOAD, PostHead};
    use hostcall_format::tags;

    /// The service, its streams, and what is printed.
    fn service() -> (InPieces, Arc<Stdio>, Capture) {
        let stdout = Capture::default();
        let stdio = Stdio::new(std::io::empty(), Sink::writers(stdout.clone(), std::io::sink()));
        let (stdio, reports) = (Arc::new(stdio), Reports::default());
        let printer = Arc::new(Printer::new(stdio.clone()));
        (InPieces { reports, checks: Arc::default(), printer }, stdio, stdout)
    }

    /// The posts of a panic: their extra bits and words.
    fn posts(panic: &[u8]) -> Vec<(u32, Vec<u64>)> {
        let pieces = panic.chunks(PIECE_BYTES);
        let last = pieces.len() - 1;
        let mut number = 0;
        let post = |(i, piece): (usize, &[u8])| {
            let this = number;
            number = next_piece(number);
            let mut bytes = piece.to_vec();
            bytes.resize(PIECE_BYTES, 0);
            let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let is_last = if i == last { LAST } else { 0 };
            (this | (piece.len() as u32) << 16 | is_last, words)
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
        let panics = service().0;
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
        let report = panics.reports.take(launch);
        let said = "lane 2 of workgroup (3, 0, 1) panicked at main.rs:5:6: short";
        assert_eq!((report.panic.unwrap().to_string(), report.other_panics), (said.to_owned(), 2));
        assert!(panics.reports.change_begun(|begun| !begun.has_some()));
    }

    #[test]
    fn a_check_is_its_place_and_condition() {
        let service = service().0;
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
        assert_eq!(service.checks.take(launch), [check]);
    }

    #[test]
    fn a_text_waits_for_the_call_of_its_lane() {
        let service = service().0;
        let launch = LaunchId::new(1, 1);
        let text = "x".repeat(100);
        let bytes = |lane: u64, text: &[u8]| [&lane.to_le_bytes()[..], text].concat();
        let post = |lane, bytes: &[u8]| {
            let caller = Caller { launch, slot: 3, lane };
            for (extra, words) in posts(bytes) {
                service.post(1, extra, Request { words: &words, bytes: &[], reply_capacity: 0, caller });
            }
        };
        let take = |launch, lane| service.reports.change_begun(|begun| begun.take_text(launch, lane));
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
        service.reports.take(launch);
        assert!(service.reports.change_begun(|begun| !begun.has_some()));
    }

    /// A line of one text.
    fn line(id: u32, text: &str) -> Vec<u8> {
        let words = [u64::from(id), tags::of(&[tags::STR]), text.len() as u64].map(u64::to_le_bytes);
        [words.as_flattened(), text.as_bytes()].concat()
    }

    /// Posts pieces of several lanes of a wave, as a ring has them: those that are alike are one run.
    fn post_run(service: &InPieces, lanes: &[(u8, &Vec<u64>)], extra: u32) -> usize {
        let mut entries = Vec::new();
        for (lane, words) in lanes {
            let head = PostHead { service: number::LINE, lane: *lane, words: words.len() as u8, extra };
            entries.push([words[0], head.to_word(words)]);
            entries.extend(words[1..].chunks(2).map(|pair| [pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        let entries: Vec<_> = entries.into_iter().map(|pair| pair.map(|word| word & PAYLOAD)).collect();
        let (_, mut posts) = Posts::new(&entries).unwrap();
        let method = service.methods().iter().position(|method| method.number() == number::LINE);
        service.posts(method.unwrap(), &mut posts);
        posts.left()
    }

    #[test]
    fn lines_of_lanes_come_in_turn_and_each_is_one() {
        let (service, stdio, stdout) = service();
        let id = service.printer.register(0, 1, "<{}>\n").unwrap();
        let long = "x".repeat(3_000_000);
        let (one, two) = (posts(&line(id, &long)), posts(&line(id, &long.replace('x', "y"))));
        // There are more posts than numbers.
        assert!(one.len() > 1 << 16);
        for ((extra, one), (_, two)) in one.iter().zip(&two) {
            assert_eq!(post_run(&service, &[(1, one), (2, two)], *extra), 0);
        }
        let [(extra, short)] = &posts(&line(id, "short"))[..] else { panic!("it is one post") };
        assert_eq!(post_run(&service, &[(3, short)], *extra), 0);
        stdio.flush().unwrap();
        assert_eq!(stdout.text(), format!("<{long}>\n<{}>\n<short>\n", long.replace('x', "y")));
        assert!(service.reports.change_begun(|begun| !begun.has_some() && begun.bytes == 0));
    }

    #[test]
    fn what_waits_for_its_end_is_bounded_and_told_of() {
        let (service, stdio, stdout) = service();
        let id = service.printer.register(0, 1, "{}\n").unwrap();
        let line = line(id, &"x".repeat(100));
        let pieces = posts(&line);
        // All other lanes' parts have taken the room but for one line.
        let others = MOST_BYTES - line.len();
        service.reports.change_begun(|begun| begun.bytes += others);
        post_run(&service, &[(0, &pieces[0].1)], pieces[0].0);
        for (extra, words) in &pieces {
            post_run(&service, &[(1, words)], *extra);
        }
        let told = stdio.flush().unwrap_err().to_string();
        let expected = "standard output: a text of 80 bytes was refused";
        assert!(told.starts_with(expected) && !told.contains("texts"), "{told}");
        for (extra, words) in &pieces[1..] {
            post_run(&service, &[(0, words)], *extra);
        }
        let _ = stdio.flush();
        assert_eq!(stdout.text(), "x".repeat(100) + "\n");
        post_run(&service, &[(0, &pieces[0].1)], pieces[0].0);
        service.reports.take(LaunchId::NONE);
        service.reports.change_begun(|begun| assert!(!begun.has_some() && begun.bytes == others));
    }

    #[test]
    fn a_line_that_is_too_long_is_given_up() {
        let (launch, most) = (LaunchId::new(1, 1), 2 * PIECE_BYTES);
        let from = Caller { launch, slot: 1, lane: 1 };
        let mut begun = Begun::default();
        let mut add = |(extra, words): &(u32, Vec<u64>)| begun.add(from, *extra, words, most);
        let pieces = posts(&[7; 2 * PIECE_BYTES + 1]);
        let [first, second, third] = &pieces[..] else { panic!("they are three") };
        assert_eq!([add(first), add(second)], [Came::Part, Came::Part]);
        assert_eq!(add(third), Came::TooMuch(vec![7; most]));
        assert_eq!([add(third), add(second)], [Came::Nothing, Came::Nothing]);
        assert_eq!(begun.bytes, 0);
    }
}
