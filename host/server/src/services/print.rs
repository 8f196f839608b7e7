//! Printed lines: formats that kernels register once, and lines that name them.

use super::calling_launch;
use super::lines::MarkedLines;
use super::sink::{Sink, Stream};
use super::stdio::Stdio;
use crate::engine::caught::{Panicked, catch};
use crate::engine::is_engines;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::service::{Method, number};
use hostcall_abi::status::CallError;
use hostcall_abi::word::{MAX_POST_WORDS, Owner};
use hostcall_format::unformatted::{LINE_HEAD_BYTES, MOST_LINE_BYTES, MOST_PIECES, PIECE_BYTES};
use hostcall_format::{Format, IntegerLine, Lines, MAX_LINE_BYTES, RenderError};
use hostcall_locks::Mutex;
use hostcall_service::{Posts, Reply, Request, Service, caller};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Formats of a chunk, and chunks. Together they bound the formats of a printer.
const CHUNK: usize = 256;
const CHUNKS: usize = 256;

/// Longest format, in bytes. All pieces of a text have room for it.
pub(super) const MAX_TEXT_BYTES: usize = 8 << 10;

const _: () = assert!(MAX_TEXT_BYTES + 8 <= MOST_PIECES as usize * PIECE_BYTES);

/// Bytes of rendered lines that are appended to the outputs without waiting for more of their run.
const GATHERED_BYTES: usize = 2 << 10;

/// Bytes of all formats together.
const MAX_TOTAL_BYTES: usize = 16 << 20;

struct Line {
    tags: u64,
    stream: Stream,
    format: Format,
    /// The format, if its lines are integers.
    integers: Option<IntegerLine>,
}

type Chunk = [OnceLock<Line>; CHUNK];

#[derive(Default)]
struct Ids {
    by_format: HashMap<(u64, Stream, Box<str>), u32>,
    bytes: usize,
}

/// Prints lines to the standard streams. A service of one method, the post of a line.
pub struct Printer {
    stdio: Arc<Stdio>,
    ids: Mutex<Ids>,
    /// Format `id` is entry `id - 1`. Entries are never removed, so that printing takes no lock to find one.
    chunks: Box<[OnceLock<Box<Chunk>>; CHUNKS]>,
    refused: AtomicU64,
}

impl Printer {
    /// A printer without formats.
    pub fn new(stdio: Arc<Stdio>) -> Self {
        Self {
            stdio,
            ids: Mutex::default(),
            chunks: Box::new([const { OnceLock::new() }; CHUNKS]),
            refused: AtomicU64::new(0),
        }
    }

    /// The id of a format: the same for the same format.
    ///
    /// # Errors
    /// [`CallError::Malformed`] when `text` is no format string, [`CallError::TooLarge`] when it or all formats
    /// together are too long, or too many.
    pub fn register(&self, tags: u64, stream: u32, text: &str) -> Result<u32, CallError> {
        let stream = Stream::from_number(stream)?;
        if text.len() > MAX_TEXT_BYTES {
            return Err(CallError::TooLarge);
        }
        let mut ids = self.ids.lock();
        let Ids { by_format, bytes } = &mut *ids;
        let index = by_format.len();
        match by_format.entry((tags, stream, text.into())) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(_) if index == CHUNK * CHUNKS || *bytes + text.len() > MAX_TOTAL_BYTES => {
                Err(CallError::TooLarge)
            }
            Entry::Vacant(place) => {
                let format = Format::parse(text).map_err(|_| CallError::Malformed)?;
                let chunk =
                    self.chunks[index / CHUNK].get_or_init(|| Box::new([const { OnceLock::new() }; CHUNK]));
                let integers = IntegerLine::new(&format, tags);
                chunk[index % CHUNK].get_or_init(|| Line { tags, stream, format, integers });
                *bytes += text.len();
                Ok(*place.insert(index as u32 + 1))
            }
        }
    }

    #[inline]
    fn line(&self, id: u32) -> Result<&Line, CallError> {
        let index = (id as usize).checked_sub(1).ok_or(CallError::Malformed)?;
        let chunk = self.chunks.get(index / CHUNK).and_then(OnceLock::get);
        chunk.and_then(|chunk| chunk[index % CHUNK].get()).ok_or(CallError::Malformed)
    }

    /// Prints a line of format `id` whose arguments are these words.
    ///
    /// # Errors
    /// [`CallError::Malformed`] when there is no such format or its arguments are others. Also when the line is
    /// too long, or a width or precision among its arguments is too large: flushes tell of such a line.
    #[inline]
    pub fn print(&self, id: u32, words: &[u64]) -> Result<(), CallError> {
        self.append(id, None, |line, out| line.format.render_words(line.tags, words, out))
    }

    /// Prints the lines of a run of posts, whose extra bits are their format's id. Returns how many were refused,
    /// as [`Printer::print`] refuses. Declines them while tens of megabytes wait to be written.
    pub fn print_run(&self, posts: &mut Posts<'_>) -> u64 {
        let sink = self.stdio.sink_of(posts.origin().launch);
        if sink.is_full() && posts.may_decline() {
            posts.decline();
            return 0;
        }
        let Ok(line) = self.line(posts.extra()) else {
            let mut refused = 0;
            posts.for_each(|_, _| refused += 1);
            return refused;
        };
        if let Some(lines) = self.stdio.lines() {
            return print_marked(sink, line, lines, posts);
        }
        match &line.integers {
            Some(integers) => match integers.arguments() {
                0 => print_integers::<0>(sink, line, integers, posts),
                1 => print_integers::<1>(sink, line, integers, posts),
                2 => print_integers::<2>(sink, line, integers, posts),
                3 => print_integers::<3>(sink, line, integers, posts),
                4 => print_integers::<4>(sink, line, integers, posts),
                // A post has no more words, so that lines of more are refused.
                _ => print_integers::<MAX_POST_WORDS>(sink, line, integers, posts),
            },
            None => print_values(sink, line, posts),
        }
    }

    /// Prints a line that came in pieces, or refuses it as [`Printer::print`] does. `wave` is whose the lane is, where that is
    /// known.
    pub(super) fn print_line(&self, wave: Option<Owner>, line: &[u8]) {
        let printed = match line.as_chunks().0 {
            [head, tags, ..] => {
                let head = LineHead::of(u64::from_le_bytes(*head));
                let (tags, values) = (u64::from_le_bytes(*tags), &line[LINE_HEAD_BYTES..]);
                match values.len() == head.bytes {
                    true => {
                        self.append(head.id, wave, |line, out| line.format.render_bytes(tags, values, out))
                    }
                    false => Err(CallError::Malformed),
                }
            }
            _ => Err(CallError::Malformed),
        };
        self.refused.fetch_add(u64::from(printed.is_err()), Ordering::Relaxed);
    }

    /// Has flushes tell of a line in pieces that is not taken.
    pub(super) fn refuse_line(&self, wave: Option<Owner>, head: LineHead, reason: &dyn Display) {
        match self.line(head.id) {
            Ok(line) => self.refuse_text(wave, line.stream, head.bytes as u64, reason),
            Err(_) => _ = self.refused.fetch_add(1, Ordering::Relaxed),
        }
    }

    #[inline]
    fn append(
        &self,
        id: u32,
        wave: Option<Owner>,
        render: impl FnOnce(&Line, &mut Vec<u8>) -> Result<(), RenderError>,
    ) -> Result<(), CallError> {
        let line = self.line(id)?;
        let sink = self.stdio.sink_of(calling_launch());
        // Whether a line is left out is asked before it is rendered: nobody is told of one that cannot be.
        let admitted = match self.stdio.lines() {
            Some(lines) => match lines.admit(caller().unwrap_or_default(), wave) {
                Some(admitted) => Some(admitted),
                None => return Ok(()),
            },
            None => None,
        };
        // A consumer does not wait: it declines posts while there is no room.
        if !is_engines() {
            sink.wait_for_room();
        }
        let Some(admitted) = admitted else {
            let rendered = sink.append().text(line.stream, |out| render(line, out));
            return rendered.map_err(|error| refuse(sink, line, error));
        };
        let mut text = Vec::new();
        render(line, &mut text).map_err(|error| refuse(sink, line, error))?;
        admitted.append(sink, line.stream, &text);
        Ok(())
    }

    /// Has flushes tell of text of the calling lane that is refused, unless what that prints is left out.
    pub(super) fn refuse_text(&self, wave: Option<Owner>, stream: Stream, bytes: u64, reason: &dyn Display) {
        let caller = caller().unwrap_or_default();
        if self.stdio.lines().is_none_or(|lines| lines.admit(caller, wave).is_some()) {
            let what = format_args!("a text of {bytes} bytes");
            self.stdio.sink_of(calling_launch()).refuse(stream, bytes, &what, reason);
        }
    }

    /// Returns whether posts of lines of a launch are declined now.
    pub(super) fn is_full(&self, launch: LaunchId) -> bool {
        self.stdio.sink_of(launch).is_full()
    }

    /// Posted lines that were not printed, because their arguments did not fit their format or they were too
    /// long.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// [`Printer::print_run`] for lines of `N` integers.
fn print_integers<const N: usize>(
    sink: &Sink,
    line: &Line,
    integers: &IntegerLine,
    posts: &mut Posts<'_>,
) -> u64 {
    let mut refused = 0;
    let mut lines = Lines::new(integers, |text| append_text(sink, line.stream, text));
    let others = posts.for_each_of(|words: [u64; N]| refused += u64::from(lines.push(&words).is_err()));
    lines.finish();
    refused + others as u64
}

/// [`Printer::print_run`] for lines of any values.
fn print_values(sink: &Sink, line: &Line, posts: &mut Posts<'_>) -> u64 {
    let (mut text, mut refused) = (Vec::with_capacity(2 * GATHERED_BYTES), 0);
    let (mut has_room, may_decline) = (true, posts.may_decline());
    posts.for_each_taken(|words, _| {
        if !has_room {
            return false;
        }
        refused += u64::from(!render_post(sink, line, words, &mut text));
        if text.len() >= GATHERED_BYTES {
            append_text(sink, line.stream, &text);
            text.clear();
            // A run of long lines may have more than all that waits otherwise.
            has_room = !(sink.is_full() && may_decline);
        }
        true
    });
    append_text(sink, line.stream, &text);
    refused
}

/// [`Printer::print_run`] for lines that say where they come from, or of which some are left out.
fn print_marked(sink: &Sink, line: &Line, lines: &MarkedLines, posts: &mut Posts<'_>) -> u64 {
    let (mut text, mut refused, wave) = (Vec::new(), 0, posts.wave());
    let may_decline = posts.may_decline();
    posts.for_each_taken(|words, caller| {
        if sink.is_full() && may_decline {
            return false;
        }
        let is_printed = catch(|| {
            // Nobody is told of a line that is left out and could not be rendered.
            let Some(admitted) = lines.admit(caller, Some(wave)) else { return true };
            text.clear();
            let is_rendered = render_post(sink, line, words, &mut text);
            if is_rendered {
                admitted.append(sink, line.stream, &text);
            }
            is_rendered
        });
        if is_printed.is_err() {
            refuse_panicked(sink, line);
        }
        refused += u64::from(!is_printed.unwrap_or(false));
        true
    });
    refused
}

/// Appends the text of a posted line. Returns `false` of a line that is refused, and leaves the text as it was.
/// A panic is caught here: the run goes on with the next line, and those that are gathered already are not lost.
fn render_post(sink: &Sink, line: &Line, words: &[u64], text: &mut Vec<u8>) -> bool {
    let before = text.len();
    match catch(|| line.format.render_words(line.tags, words, text)) {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => _ = refuse(sink, line, error),
        Err(Panicked) => {
            text.truncate(before);
            refuse_panicked(sink, line);
        }
    }
    false
}

/// Has flushes tell of a line whose formatting panicked.
#[cold]
fn refuse_panicked(sink: &Sink, line: &Line) {
    sink.refuse(line.stream, 0, &"a line", &"the server's code that formats it panicked");
}

/// What the first word of a line in pieces says.
#[derive(Clone, Copy)]
pub(super) struct LineHead {
    id: u32,
    /// Bytes of its values.
    pub bytes: usize,
}

impl LineHead {
    pub fn of(word: u64) -> Self {
        Self { id: word as u32, bytes: (word >> 32) as usize }
    }
}

/// Why a line is refused that has more than [`MOST_LINE_BYTES`] of values.
pub(super) fn too_long() -> impl Display {
    format!("a line has at most {MOST_LINE_BYTES} bytes of values")
}

/// Returns the error of a line that is not printed. Has flushes tell of it where a kernel without fault may
/// print such a line.
#[cold]
fn refuse(sink: &Sink, line: &Line, error: RenderError) -> CallError {
    match error {
        RenderError::TooLong => sink.refuse(line.stream, MAX_LINE_BYTES as u64, &"a line", &error),
        RenderError::Count(_) => sink.refuse(line.stream, 0, &"a line", &error),
        RenderError::Missing(_) | RenderError::Type(_) | RenderError::Decode => {}
    }
    CallError::Malformed
}

/// Appends rendered lines. The sink is not locked for longer, so that its writer need not wait for a lock that is nearly
/// always taken.
fn append_text(sink: &Sink, stream: Stream, text: &[u8]) {
    sink.append().text(stream, |out| out.extend_from_slice(text));
}

impl Service for super::SharedHandler<Printer> {
    fn methods(&self) -> &[Method] {
        // No schema: a post's extra bits are the format's id.
        const { &[Method::untyped("System::print", number::PRINT)] }
    }

    fn call(&self, _: usize, _: Request<'_>, _: &mut dyn Reply) -> Result<(), CallError> {
        Err(CallError::TypeMismatch)
    }

    #[inline]
    fn post(&self, _: usize, id: u32, request: Request<'_>) {
        if self.0.print(id, request.words).is_err() {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn posts(&self, _: usize, posts: &mut Posts<'_>) -> usize {
        let refused = self.0.print_run(posts);
        self.0.refused.fetch_add(refused, Ordering::Relaxed);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::SharedHandler;
    use crate::services::testing::Capture;
    use hostcall_abi::word::{PAYLOAD, PostHead};
    use hostcall_format::tags;
    use hostcall_service::Caller;

    fn printer() -> (SharedHandler<Printer>, Capture, Capture) {
        let (stdout, stderr) = (Capture::default(), Capture::default());
        let sink = Sink::writers(stdout.clone(), stderr.clone());
        (SharedHandler(Arc::new(Printer::new(Arc::new(Stdio::new(std::io::empty(), sink))))), stdout, stderr)
    }

    fn post(printer: &SharedHandler<Printer>, id: u32, words: &[u64]) {
        let request = Request { words, bytes: &[], reply_capacity: 0, caller: Caller::default() };
        printer.post(0, id, request);
    }

    /// A line of a text in pieces, put together, that says how long the text is.
    fn line(id: u32, len: u64, text: &str) -> Vec<u8> {
        let head = u64::from(id) | (8 + text.len() as u64) << 32;
        let words = [head, tags::of(&[tags::STR]), len].map(u64::to_le_bytes);
        [words.as_flattened(), text.as_bytes()].concat()
    }

    #[test]
    fn lines_go_to_their_streams() {
        let (printer, stdout, stderr) = printer();
        let kinds = tags::of(&[tags::UNSIGNED, tags::I32]);
        let out = printer.0.register(kinds, 1, "{} and {:>4}\n").unwrap();
        let err = printer.0.register(kinds, 2, "{} and {:>4}\n").unwrap();
        assert_ne!(out, err);
        assert_eq!(printer.0.register(kinds, 1, "{} and {:>4}\n"), Ok(out));
        post(&printer, out, &[7, -3i64 as u64]);
        post(&printer, err, &[8, 9]);
        let text = printer.0.register(0, 1, "<{}>\n").unwrap();
        printer.0.print_line(None, &line(text, 2, "hé"));
        assert_eq!(printer.0.refused(), 1);
        printer.0.print_line(None, &line(text, 3, "hé"));
        printer.0.stdio.flush().unwrap();
        assert_eq!(stdout.text(), "7 and   -3\n<hé>\n");
        assert_eq!(stderr.text(), "8 and    9\n");
        for bad in [&line(text, 3, "hé")[..LINE_HEAD_BYTES - 1], &line(0, 1, "x"), &line(99, 1, "x"), &[]] {
            printer.0.print_line(None, bad);
        }
        assert_eq!(printer.0.refused(), 5);
    }

    #[test]
    fn lines_that_do_not_fit_their_format_are_counted() {
        let (printer, stdout, _) = printer();
        let id = printer.0.register(tags::of(&[tags::BOOL]), 1, "{}\n").unwrap();
        let missing = printer.0.register(0, 1, "a{}\n").unwrap();
        for (id, words) in
            [(0, &[][..]), (3, &[]), (u32::MAX, &[]), (id, &[]), (id, &[2]), (id, &[1, 1]), (missing, &[])]
        {
            post(&printer, id, words);
        }
        post(&printer, id, &[1]);
        printer.0.stdio.flush().unwrap();
        assert_eq!(stdout.text(), "true\n");
        assert_eq!(printer.0.refused(), 7);
    }

    #[test]
    fn runs_of_posts_print_like_single_posts() {
        let (printer, stdout, _) = printer();
        let mut expected = String::new();
        let mut refused = 0;
        for (text, kinds) in [
            ("nothing\n", &[][..]),
            ("{}\n", &[tags::UNSIGNED]),
            ("{1}, {0:x}\n", &[tags::UNSIGNED, tags::UNSIGNED]),
            ("{} {} {}\n", &[tags::UNSIGNED, tags::I8, tags::I64]),
            ("{} {} {} {} {}\n", &[tags::I32; 5]),
            ("too many words for a post: {5}\n", &[tags::I32; 6]),
        ] {
            let id = printer.0.register(tags::of(kinds), 1, text).unwrap();
            // As many words as the format's arguments, and one more.
            for count in [kinds.len(), kinds.len() + 1] {
                let count = count.min(MAX_POST_WORDS);
                let format = Format::parse(text).unwrap();
                let mut entries = Vec::new();
                for i in 0..300u64 {
                    let words = &[i, i, (i << 40).wrapping_neg(), i << 23, 1][..count];
                    let head = PostHead { service: 1, lane: 0, words: count as u8, extra: id }.to_word(words);
                    let first = [words.first().copied().unwrap_or(0), head];
                    let others = words.get(1..).unwrap_or(&[]).chunks(2);
                    entries.push(first);
                    entries.extend(others.map(|pair| [pair[0], pair.get(1).copied().unwrap_or(0)]));
                    let mut line = Vec::new();
                    refused += u64::from(format.render_words(tags::of(kinds), words, &mut line).is_err());
                    expected += std::str::from_utf8(&line).unwrap();
                }
                let entries: Vec<_> =
                    entries.into_iter().map(|pair| pair.map(|word| word & PAYLOAD)).collect();
                let (_, mut posts) = Posts::new(&entries).unwrap();
                assert_eq!(printer.posts(0, &mut posts), 0);
            }
        }
        printer.0.stdio.flush().unwrap();
        assert_eq!(stdout.text(), expected);
        assert_eq!(printer.0.refused(), refused);
    }

    #[test]
    fn flushes_tell_of_lines_that_are_too_long() {
        type Print = dyn Fn(&Printer, u32);
        let too_long = "{0:65535}".repeat(300) + "\n";
        let lost = MAX_LINE_BYTES as u64;
        let by_bytes = |printer: &Printer, id| {
            printer.print_line(None, &line(id, 1, "x"));
        };
        let by_posts = |printer: &Printer, id| {
            let head = PostHead { service: 1, lane: 0, words: 1, extra: id }.to_word(&[7]);
            let entries = [[7, head].map(|word| word & PAYLOAD)];
            let (_, mut posts) = Posts::new(&entries).unwrap();
            assert_eq!((printer.print_run(&mut posts), posts.left()), (1, 0));
        };
        let by_post = |printer: &Printer, id| {
            assert_eq!(printer.print(id, &[7]), Err(CallError::Malformed));
        };
        let ways: [(u64, &Print); 3] = [
            (0, &by_bytes),
            (tags::of(&[tags::UNSIGNED]), &by_posts),
            (tags::of(&[tags::UNSIGNED]), &by_post),
        ];
        for lines in [super::super::Lines::new(), super::super::Lines::new().prefix()] {
            for (kinds, print) in ways {
                let (stdout, stderr) = (Capture::default(), Capture::default());
                let sink = Sink::writers(stdout.clone(), stderr.clone());
                let stdio = Stdio::new(std::io::empty(), sink.clone()).with_lines(lines.clone());
                let printer = Printer::new(Arc::new(stdio));
                let id = printer.register(kinds, 2, &too_long).unwrap();
                print(&printer, id);
                let told = sink.flush().unwrap_err().to_string();
                let expected =
                    "standard error: a line was refused: the printed line is longer than 16777216 bytes";
                assert_eq!((&*told, sink.lost_bytes()), (expected, lost));
                print(&printer, id);
                let told = sink.flush().unwrap_err().to_string();
                assert_eq!(told, format!("{expected}; 2 texts were refused in all"));
                // What is short is printed all the same.
                let id = printer.register(0, 1, "on\n").unwrap();
                printer.print(id, &[]).unwrap();
                let _ = sink.flush();
                assert_eq!((stdout.text(), stderr.text()), ("on\n".into(), String::new()));
            }
        }
    }

    #[test]
    fn nobody_is_told_of_lines_that_are_left_out() {
        type Print = dyn Fn(&Printer, u32);
        let too_long = "{0:65535}".repeat(300) + "\n";
        let by_bytes = |printer: &Printer, id| {
            printer.print_line(None, &line(id, 1, "x"));
        };
        let by_posts = |printer: &Printer, id| {
            let head = PostHead { service: 1, lane: 0, words: 1, extra: id }.to_word(&[7]);
            let entries = [[7, head].map(|word| word & PAYLOAD)];
            let (_, mut posts) = Posts::new(&entries).unwrap();
            assert_eq!((printer.print_run(&mut posts), posts.left()), (0, 0));
        };
        let by_post = |printer: &Printer, id| assert_eq!(printer.print(id, &[7]), Ok(()));
        let by_device = |printer: &Printer, _| printer.refuse_text(None, Stream::Stdout, 9, &"too long");
        let ways: [(u64, &Print); 4] = [
            (0, &by_bytes),
            (tags::of(&[tags::UNSIGNED]), &by_posts),
            (tags::of(&[tags::UNSIGNED]), &by_post),
            (0, &by_device),
        ];
        for (kinds, print) in ways {
            let sink = Sink::writer(std::io::sink());
            let lines = super::super::Lines::new().of_kernel("other");
            let stdio = Stdio::new(std::io::empty(), sink.clone()).with_lines(lines);
            stdio.set_origin("cpu", 32, |_, _| ("relax".into(), None));
            let printer = Printer::new(Arc::new(stdio));
            let id = printer.register(kinds, 1, &too_long).unwrap();
            print(&printer, id);
            assert!(sink.flush().is_ok());
            assert_eq!((sink.lost_bytes(), sink.appended()), (0, 0));
        }
    }

    #[test]
    fn flushes_tell_of_widths_that_are_too_large() {
        let (printer, stdout, _) = printer();
        let id = printer.0.register(tags::of(&[tags::UNSIGNED; 2]), 1, "{0:1$}\n").unwrap();
        post(&printer, id, &[7, 3]);
        post(&printer, id, &[7, 70_000]);
        let told = printer.0.stdio.flush().unwrap_err().to_string();
        let expected = "argument 1 of the printed line is a width or precision above 65535";
        assert_eq!(told, format!("standard output: a line was refused: {expected}"));
        assert_eq!((stdout.text(), printer.0.refused()), ("  7\n".into(), 1));
    }

    #[test]
    fn a_panic_loses_one_line_of_a_run() {
        let (stdout, stderr) = (Capture::default(), Capture::default());
        let sink = Sink::writers(stdout.clone(), stderr);
        let stdio =
            Stdio::new(std::io::empty(), sink.clone()).with_lines(super::super::Lines::new().prefix());
        stdio.set_origin("cpu", 32, |caller, _| {
            assert_ne!(caller.lane, 1, "a place that is not found, as a test");
            ("relax".into(), None)
        });
        let printer = Printer::new(Arc::new(stdio));
        let id = printer.register(tags::of(&[tags::UNSIGNED]), 1, "{}\n").unwrap();
        let entries: Vec<_> = (0..4u8)
            .map(|lane| {
                let words = [u64::from(lane)];
                let head = PostHead { service: 1, lane, words: 1, extra: id }.to_word(&words);
                [words[0], head].map(|word| word & PAYLOAD)
            })
            .collect();
        let (_, mut posts) = Posts::new(&entries).unwrap();
        assert_eq!((printer.print_run(&mut posts), posts.left()), (1, 0));
        let told = sink.flush().unwrap_err().to_string();
        assert!(told.contains("a line was refused") && told.contains("panicked"), "{told}");
        let lines = stdout.text();
        let lines: Vec<_> = lines.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(lines, ["0", "2", "3"]);
    }

    /// Waits with what it is given until the channel is closed.
    struct Stuck(std::sync::mpsc::Receiver<()>);

    impl std::io::Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_run_of_long_lines_takes_no_more_than_others() {
        let (go, wait) = std::sync::mpsc::channel();
        let sink = Sink::writer(Stuck(wait));
        let printer = Printer::new(Arc::new(Stdio::new(std::io::empty(), sink.clone())));
        let id = printer.register(tags::of(&[tags::UNSIGNED]), 1, "{:65535}\n").unwrap();
        let head = PostHead { service: 1, lane: 0, words: 1, extra: id }.to_word(&[7]);
        let entries = vec![[7, head].map(|word| word & PAYLOAD); 2000];
        let (_, mut posts) = Posts::new(&entries).unwrap();
        assert_eq!(printer.print_run(&mut posts), 0);
        assert!(posts.is_declined());
        let taken = 2000 - posts.left();
        assert!((1024..1200).contains(&taken), "{taken} lines of 64 KiB");
        drop(go);
        sink.flush().unwrap();
        assert_eq!(printer.print_run(&mut posts), 0);
        assert_eq!((posts.left(), sink.appended()), (0, 2000 << 16));
    }

    #[test]
    fn bad_formats_are_refused_and_their_number_is_bounded() {
        let (printer, ..) = printer();
        assert_eq!(printer.0.register(0, 0, "x"), Err(CallError::Malformed));
        assert_eq!(printer.0.register(0, 1, "{"), Err(CallError::Malformed));
        assert_eq!(printer.0.register(0, 1, &"x".repeat(MAX_TEXT_BYTES + 1)), Err(CallError::TooLarge));
        let most = (CHUNK * CHUNKS) as u32;
        for i in 0..most {
            assert_eq!(printer.0.register(0, 1, &i.to_string()), Ok(i + 1));
        }
        assert_eq!(printer.0.register(0, 1, "one more"), Err(CallError::TooLarge));
        assert_eq!(printer.0.register(0, 1, "5"), Ok(6));
        assert_eq!(printer.0.print(most, &[]), Ok(()));
    }
}
