//! Counts lines, words, characters and bytes of files, or of the standard input, as GNU wc does where characters are
//! UTF-8. Every lane counts in a part of each file; the lane that ends last joins the parts and prints.
//!
//! `hostcall run programs/wc [-l] [-w] [-m] [-c] [-L] [FILE]...`

#![no_std]

extern crate alloc;

mod columns;
mod count;
mod input;
mod options;
mod quote;
mod unprintable;
mod width;

use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use columns::Columns;
use core::sync::atomic::{AtomicU64, Ordering};
use count::{Counts, Wanted};
use hostcall_device::abi::wire::Wire;
use hostcall_device::{Global, Lane, eprintln, io};
use input::{Input, message};
use options::Options;
use quote::quoted;

/// Lanes that count, at most: as many as keep the link busy. With three times as many, nothing is faster on an H200, and
/// there is more to join.
const MOST_LANES: usize = 1 << 15;

/// The work of one run, which all lanes share.
struct Job<'launch> {
    options: Options,
    inputs: Vec<Input<'launch>>,
    /// What each lane found: of input `i`, lane `l` at `i * lanes + l`.
    parts: Vec<Part>,
}

/// One lane's counts of its part, in words that another lane reads later.
#[derive(Default)]
struct Part {
    lines: Global<u64>,
    words: Global<u64>,
    bytes: Global<u64>,
    characters: Global<u64>,
    /// Of [`Columns`]: `before_tab`, `after_tab`, and both of `ended`, zero for what is not there.
    columns: [Global<u64>; 4],
    /// Bit 0: there is a character that counts; bit 1: `starts_in_word`; bit 2: `ends_in_word`; bit 3: `after_tab`
    /// is there; bit 4: `ended` is there.
    flags: Global<u64>,
    /// The error's number and one, or 0.
    error: Global<u64>,
}

impl Part {
    fn set(&self, found: Result<Counts, input::Error>) {
        let counts = found.unwrap_or_else(|error| {
            let mut word = [0];
            error.to_words(&mut word);
            self.error.set(word[0]);
            Counts::default()
        });
        self.lines.set(counts.lines);
        self.words.set(counts.words);
        self.bytes.set(counts.bytes);
        self.characters.set(counts.characters);
        let Columns { before_tab, after_tab, ended } = counts.columns;
        let (longest, last) = ended.unwrap_or_default();
        for (to, word) in self.columns.iter().zip([before_tab, after_tab.unwrap_or(0), longest, last]) {
            to.set(word);
        }
        let start = counts.starts_in_word;
        let flags =
            [start.is_some(), start == Some(true), counts.ends_in_word, after_tab.is_some(), ended.is_some()];
        self.flags.set(flags.iter().enumerate().map(|(bit, on)| u64::from(*on) << bit).sum());
    }

    fn counts(&self) -> Counts {
        let flag = |bit: u32| self.flags.get() >> bit & 1 != 0;
        Counts {
            lines: self.lines.get(),
            words: self.words.get(),
            bytes: self.bytes.get(),
            characters: self.characters.get(),
            columns: Columns {
                before_tab: self.columns[0].get(),
                after_tab: flag(3).then(|| self.columns[1].get()),
                ended: flag(4).then(|| (self.columns[2].get(), self.columns[3].get())),
            },
            starts_in_word: flag(0).then_some(flag(1)),
            ends_in_word: flag(2),
        }
    }

    fn error(&self) -> Option<input::Error> {
        input::Error::from_words(&[self.error.get()])
    }
}

/// Address of the run's `Result<Job, i32>`; before it, 0 and then [`BEING_MADE`].
static JOB: AtomicU64 = AtomicU64::new(0);
const BEING_MADE: u64 = 1;

/// Lanes that have counted.
static DONE: AtomicU64 = AtomicU64::new(0);

#[hostcall_device::main(resident, lanes = 32)]
fn main(lane: &Lane) -> i32 {
    let address = lane.once_per_workgroup(|| share_job(lane));
    // SAFETY: `share_job` gave the address of a `Result<Job, i32>`, which lives until the last lane is `DONE`.
    let job = unsafe { &*core::ptr::with_exposed_provenance::<Result<Job<'_>, i32>>(address as usize) };
    if let Ok(job) = job {
        job.count(lane);
    }
    // Release: the parts; acquire: those of the other lanes.
    if DONE.fetch_add(1, Ordering::AcqRel) + 1 < lane.grid_lanes() as u64 {
        return 0;
    }
    let code = job.as_ref().map_or_else(|code| *code, |job| job.print(counting_lanes(lane)));
    // Ready for another launch of this image.
    DONE.store(0, Ordering::Relaxed);
    JOB.store(0, Ordering::Relaxed);
    // SAFETY: `Box::into_raw` gave the pointer, and this is the last lane, which uses it no more.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(job).cast_mut()) });
    code
}

/// Lanes of the grid that count.
fn counting_lanes(lane: &Lane) -> usize {
    lane.grid_lanes().min(MOST_LANES)
}

/// The job's address. The first workgroup to come makes it.
fn share_job(lane: &Lane) -> u64 {
    if JOB.compare_exchange(0, BEING_MADE, Ordering::Acquire, Ordering::Acquire).is_ok() {
        let job = Box::into_raw(Box::new(Job::new(lane)));
        JOB.store(job.expose_provenance() as u64, Ordering::Release);
    }
    loop {
        match JOB.load(Ordering::Acquire) {
            BEING_MADE => lane.pause(),
            address => return address,
        }
    }
}

impl<'launch> Job<'launch> {
    /// `Err`: there is nothing to count, the user was told why, and this is the exit code.
    fn new(lane: &'launch Lane) -> Result<Self, i32> {
        let mut options = Options::read().unwrap_or_else(|_| {
            eprintln!("wc: the host does not answer");
            Err(1)
        })?;
        let files = core::mem::take(&mut options.files);
        let inputs: Vec<Input<'_>> = match files.is_empty() {
            true => vec![Input::open(lane, None)],
            false => files.into_iter().map(|name| Input::open(lane, Some(name))).collect(),
        };
        let mut parts = Vec::new();
        parts.resize_with(inputs.len() * counting_lanes(lane), Part::default);
        Ok(Self { options, inputs, parts })
    }

    fn count(&self, lane: &Lane) {
        let (id, lanes) = (lane.global_id(), counting_lanes(lane));
        if id >= lanes {
            return;
        }
        let Options { lines, words, characters, longest_line, .. } = self.options;
        let reads = lines || words || characters || longest_line;
        let wanted = reads.then_some(Wanted { words, characters, columns: longest_line });
        for (input, parts) in self.inputs.iter().zip(self.parts.chunks(lanes)) {
            parts[id].set(input.count(id as u64, lanes as u64, wanted));
        }
    }

    /// Prints what all lanes found and gives the exit code.
    fn print(&self, lanes: usize) -> i32 {
        let width = self.width();
        let mut total = [0; 5];
        let mut code = 0;
        for (input, parts) in self.inputs.iter().zip(self.parts.chunks(lanes)) {
            let counts = parts.iter().map(Part::counts).fold(Counts::default(), Counts::join);
            if let Some(error) = parts.iter().find_map(Part::error) {
                match input.name.as_deref() {
                    // GNU wc does not ask the system for it.
                    Some([]) => eprintln!("wc: invalid zero-length file name"),
                    Some(name) => eprintln!("wc: {}: {}", quoted(name).as_str(), message(error)),
                    None => eprintln!("wc: standard input: {}", message(error)),
                }
                code = 1;
            }
            let longest = counts.columns.longest();
            let row = [counts.lines, counts.words, counts.characters, counts.bytes, longest];
            if !input.is_missing() {
                code |= self.print_row(width, row, input.name.as_deref());
            }
            for (total, count) in total.iter_mut().zip(row).take(4) {
                *total += count;
            }
            total[4] = longest.max(total[4]);
        }
        if self.inputs.len() > 1 {
            code |= self.print_row(width, total, Some(b"total"));
        }
        code
    }

    /// Prints lines, words, characters, bytes and the longest line's columns, as far as they are asked for. Returns the exit
    /// code.
    fn print_row(&self, width: usize, row: [u64; 5], name: Option<&[u8]>) -> i32 {
        let Options { lines, words, characters, bytes, longest_line, .. } = self.options;
        let mut text = Vec::new();
        for (on, count) in [lines, words, characters, bytes, longest_line].into_iter().zip(row) {
            if on {
                let gap = if text.is_empty() { "" } else { " " };
                text.extend(format!("{gap}{count:>width$}").into_bytes());
            }
        }
        if let Some(name) = name {
            text.push(b' ');
            match name.contains(&b'\n') {
                true => text.extend(quoted(name).into_bytes()),
                false => text.extend(name),
            }
        }
        text.push(b'\n');
        match io::stdout().write(&text) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("wc: write error: {}", message(error));
                1
            }
        }
    }

    /// Width of each number: as wide as all files' bytes together, and 7 at least if not all are on a disk.
    fn width(&self) -> usize {
        if self.inputs.len() == 1 && self.options.columns() == 1 {
            return 1;
        }
        let unknown = |input: &&Input<'_>| !input.is_missing() && input.disk_bytes().is_none();
        let least = if self.inputs.iter().any(|input| unknown(&input)) { 7 } else { 1 };
        let bytes: u64 = self.inputs.iter().filter_map(Input::disk_bytes).sum();
        least.max(bytes.checked_ilog10().unwrap_or(0) as usize + 1)
    }
}
