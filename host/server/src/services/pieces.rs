//! What comes as posts in pieces: panics whose messages the host formats and printed lines with texts
//! (`hostcall_format::unformatted`), texts that a call is about, which the lane makes next, and checks of kernels of others that
//! have failed.

use super::foreign::{Checks, FailedCheck};
use super::print::{LineHead, Printer, too_long};
use super::system::{Panic, Reports};
use crate::engine::rare::MayBeEmpty;
use hostcall_abi::launch::{LaunchId, LaunchIds};
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

/// Bytes of lines of which posts are still to come, all launches together, with which another one waits in its wave's ring.
const MANY_BYTES: usize = 256 << 20;

/// The same, with which another one is refused: lines of a wave of which one has begun do not wait, since what ends that one may
/// lie behind them in the ring.
const MOST_BYTES: usize = 1 << 30;

/// A message of which posts are still to come.
struct Part {
    bytes: Vec<u8>,
    /// The next post's number.
    next: u32,
    /// Most bytes that it has.
    most: usize,
}

/// What has come so far of lanes' messages.
#[derive(Default)]
pub(super) struct Begun {
    /// By launch, slot and lane: a ring has the posts of a lane in their order.
    parts: HashMap<LaunchId, HashMap<(u32, u8), Part>>,
    /// Most bytes of all of those.
    bytes: usize,
    /// Whole texts, by the names that their lanes have in their calls.
    texts: HashMap<(LaunchId, u64), String>,
}

impl MayBeEmpty for Begun {
    fn has_some(&self) -> bool {
        self.parts.has_some() || self.texts.has_some()
    }
}

/// Whether there is room for a line.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    Some,
    /// Once others have ended.
    Later,
    None,
}

impl Begun {
    /// Begins a lane's message of at most so many bytes, in place of what there was.
    fn begin(&mut self, from: Caller, most: usize) -> &mut Part {
        self.end(from);
        if !self.parts.contains_key(&from.launch) {
            // Of a launch that has ended a post may have been on its way to here.
            let is_past = |of: &LaunchId| of.index() == from.launch.index() && *of != from.launch;
            let past = self.parts.extract_if(|of, _| is_past(of)).flat_map(|(_, parts)| parts.into_values());
            self.bytes -= past.map(|part| part.most).sum::<usize>();
        }
        self.bytes += most;
        let of_launch = self.parts.entry(from.launch).or_default();
        let part = Part { bytes: Vec::new(), next: 0, most };
        of_launch.entry((from.slot, from.lane)).insert_entry(part).into_mut()
    }

    /// Takes what there is of a lane's message.
    fn end(&mut self, from: Caller) -> Option<Vec<u8>> {
        let of_launch = self.parts.get_mut(&from.launch)?;
        let part = of_launch.remove(&(from.slot, from.lane))?;
        if of_launch.is_empty() {
            self.parts.remove(&from.launch);
        }
        self.bytes -= part.most;
        Some(part.bytes)
    }

    /// Begins a lane's line of so many bytes, if there is room.
    fn begin_line(&mut self, from: Caller, bytes: usize) -> Room {
        self.end(from);
        let of_wave = |parts: &HashMap<(u32, u8), Part>| parts.keys().any(|(slot, _)| *slot == from.slot);
        if self.bytes + bytes > MOST_BYTES {
            return Room::None;
        }
        if self.bytes + bytes > MANY_BYTES
            && self.bytes > 0
            && !self.parts.get(&from.launch).is_some_and(of_wave)
        {
            return Room::Later;
        }
        self.begin(from, bytes).bytes.reserve_exact(bytes);
        Room::Some
    }

    /// Adds the words of a post to its lane's message, and returns that if the post was the last one. A post that is not the
    /// lane's next one ends what there was.
    fn add(&mut self, from: Caller, extra: u32, words: &[u64]) -> Option<Vec<u8>> {
        let (piece, count, is_last) = (extra & 0xffff, extra as usize >> 16 & 0xff, extra & LAST != 0);
        let part = self.parts.get_mut(&from.launch)?.get_mut(&(from.slot, from.lane))?;
        let is_next = part.next == piece && words.len() * 8 == PIECE_BYTES;
        let is_whole = count == PIECE_BYTES || count < PIECE_BYTES && is_last;
        if !is_next || !is_whole || part.bytes.len() + count > part.most {
            self.end(from);
            return None;
        }
        part.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(count));
        part.next = next_piece(piece);
        if is_last { self.end(from) } else { None }
    }

    /// Drops what there is of launches that have ended: their lanes were ended before they had posted all.
    pub fn forget(&mut self, launches: LaunchIds) {
        let dropped = self.parts.extract_if(|of, _| launches.contains(*of));
        self.bytes -= dropped.flat_map(|(_, parts)| parts.into_values()).map(|part| part.most).sum::<usize>();
        self.texts.retain(|(of, _), _| !launches.contains(*of));
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
    /// Handles a post of a printed line. Returns `false` if it is to come again.
    fn line(&self, from: Caller, wave: Option<Owner>, extra: u32, words: &[u64], may_wait: bool) -> bool {
        if may_wait && extra & LAST != 0 && self.printer.is_full(from.launch) {
            return false;
        }
        let lines = self.reports.lines();
        if extra & 0xffff == 0 {
            let head = LineHead::of(words.first().copied().unwrap_or(0));
            let room = match head.bytes > MOST_LINE_BYTES {
                true => Room::None,
                false => lines.change(|lines| lines.begin_line(from, LINE_HEAD_BYTES + head.bytes)),
            };
            match room {
                Room::Some => {}
                Room::Later if may_wait => return false,
                _ if head.bytes > MOST_LINE_BYTES => self.printer.refuse_line(wave, head, &too_long()),
                _ => self.printer.refuse_line(wave, head, &"too many lines are on their way"),
            }
        }
        if let Some(line) = lines.change_some(|lines| lines.add(from, extra, words)).flatten() {
            self.printer.print_line(wave, &line);
        }
        true
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
        let (extra, wave, may_wait) = (posts.extra(), posts.wave(), posts.may_decline());
        posts.for_each_taken(|words, from| self.line(from, Some(wave), extra, words, may_wait));
        0
    }

    fn post(&self, method: usize, extra: u32, request: Request<'_>) {
        let (from, number) = (request.caller, self.methods()[method].number());
        if number == number::LINE {
            self.line(from, None, extra, request.words, false);
            return;
        }
        let whole = self.reports.change_begun(|begun| {
            if extra & 0xffff == 0 {
                begun.begin(from, MOST_PIECES as usize * PIECE_BYTES);
            }
            begun.add(from, extra, request.words)
        });
        let Some(bytes) = whole else { return };
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
        let head = u64::from(id) | (8 + text.len() as u64) << 32;
        let words = [head, tags::of(&[tags::STR]), text.len() as u64].map(u64::to_le_bytes);
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
        assert!(service.reports.lines().change(|lines| !lines.has_some() && lines.bytes == 0));
    }

    #[test]
    fn what_waits_for_its_end_is_bounded_and_told_of() {
        let (service, stdio, stdout) = service();
        let id = service.printer.register(0, 1, "{}\n").unwrap();
        let pieces = posts(&line(id, &"x".repeat(100)));
        let post = |lane, range: std::ops::Range<usize>| -> usize {
            pieces[range].iter().map(|(extra, words)| post_run(&service, &[(lane, words)], *extra)).sum()
        };
        let others = |bytes| service.reports.lines().change(|lines| lines.bytes = bytes);
        assert_eq!(post(0, 0..1), 0);
        // Others have taken what is much: a line of a wave with an unfinished one is taken, as what ends that may be behind it.
        others(MANY_BYTES);
        assert_eq!((post(1, 0..4), post(0, 1..4)), (0, 0));
        // And now the wave has none: it waits in its ring.
        others(MANY_BYTES);
        assert_eq!(post(0, 0..1), 1);
        others(MOST_BYTES);
        assert_eq!(post(0, 0..4), 0);
        let told = stdio.flush().unwrap_err().to_string();
        let expected = "standard output: a text of 108 bytes was refused: too many lines are on their way";
        assert_eq!(told, expected);
        others(0);
        assert_eq!(post(0, 0..4), 0);
        let _ = stdio.flush();
        assert_eq!(stdout.text(), ("x".repeat(100) + "\n").repeat(3));
    }

    #[test]
    fn lines_of_launches_that_have_ended_are_forgotten() {
        let mut lines = Begun::default();
        let from = |launch, lane| Caller { launch, slot: 1, lane };
        let [one, two, other] = [(1, 1), (2, 1), (1, 2)].map(|(index, turn)| LaunchId::new(index, turn));
        for launch in [one, two] {
            for lane in 0..3 {
                assert_eq!(lines.begin_line(from(launch, lane), 100), Room::Some);
            }
        }
        lines.forget(LaunchIds::new(two, 1));
        assert_eq!((lines.bytes, lines.parts.len()), (300, 1));
        // A post that came after its launch was forgotten goes with the next launch of its index.
        assert_eq!(lines.begin_line(from(other, 0), 50), Room::Some);
        assert_eq!((lines.bytes, lines.parts.len()), (50, 1));
        assert_eq!(lines.end(from(other, 0)), Some(Vec::new()));
        assert_eq!((lines.bytes, lines.has_some()), (0, false));
    }

    #[test]
    fn a_line_has_the_bytes_that_it_says() {
        let (service, stdio, stdout) = service();
        let id = service.printer.register(0, 1, "{}\n").unwrap();
        for wrong in [-1, 1, 40] {
            let mut line = line(id, &"x".repeat(100));
            line[4] = line[4].wrapping_add_signed(wrong);
            for (extra, words) in posts(&line) {
                post_run(&service, &[(0, &words)], extra);
            }
        }
        let mut line = line(id, "x");
        line[4..8].copy_from_slice(&(MOST_LINE_BYTES as u32 + 1).to_le_bytes());
        for (extra, words) in posts(&line) {
            post_run(&service, &[(0, &words)], extra);
        }
        let told = stdio.flush().unwrap_err().to_string();
        assert!(told.ends_with("a line has at most 67108864 bytes of values"), "{told}");
        assert_eq!(stdout.text(), "");
        assert!(service.reports.lines().change(|lines| !lines.has_some() && lines.bytes == 0));
    }
}
