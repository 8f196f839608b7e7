//! What kernels print and check that other compilers made, by `hostcall_device.h`.

use super::sink::Stream;
use super::stdio::Stdio;
use super::{MAX_C_FORMAT_BYTES, SharedHandler, calling_launch};
use crate::engine::report;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::schema;
use hostcall_abi::status::CallError;
use hostcall_device::services::{ForeignHandler, StdoutHandler};
use hostcall_format::c::{Format, MAX_LINE_BYTES};
use hostcall_locks::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Places of which failures are kept, a launch. Failures at others are counted with the last.
const MOST_PLACES: usize = 256;

/// Most checks that have numbers, in a process: at that many, two have the same one in 1 of 500 processes.
pub const MOST_NUMBERED: usize = 4096;

/// Bytes to which texts are cut.
const MOST_TEXT_BYTES: usize = 1024;

/// A check of a kernel's that failed, with the first thread that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCheck {
    /// What did not hold.
    pub condition: String,
    /// Source file, empty where nobody said it.
    pub file: String,
    /// Line in the file, from 1; 0 where nobody said it.
    pub line: u32,
    /// Position of the first block in the grid.
    pub block: [u32; 3],
    /// Position of the first thread in its block.
    pub thread: [u32; 3],
    /// Index of that thread in its wave.
    pub lane: u8,
    /// How many threads found it.
    pub count: u64,
    /// The launch of the first, where hostcall launched the kernel, else the context's.
    pub launch: LaunchId,
    /// The name of that launch's kernel, or of the context.
    pub kernel: Arc<str>,
}

impl fmt::Display for FailedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, file, line, block: [x, y, z], thread: [i, j, k], count, .. } = self;
        if !file.is_empty() {
            write!(f, "{file}:{line}: ")?;
        }
        write!(f, "block ({x}, {y}, {z}), thread ({i}, {j}, {k}): `{condition}` does not hold")?;
        if *count > 1 { write!(f, ", nor for {} more", count - 1) } else { Ok(()) }
    }
}

/// Where a check is that has a number.
#[derive(Clone, Default, PartialEq, Eq)]
struct CheckPlace {
    condition: String,
    file: String,
    line: u32,
}

/// Checks by their numbers, in the process's name: code that was compiled for one device, or by a process before, has them too.
static NUMBERED: Mutex<BTreeMap<u32, CheckPlace>> = Mutex::new(BTreeMap::new());

/// A check got no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckNumberError {
    /// Too many have one.
    #[error(
        "{MOST_NUMBERED} checks of this process have numbers: give those that differ in their text alone the same"
    )]
    TooMany,
    /// Another check has the same hash.
    #[error("another check happens to have the same number: change the text")]
    Taken,
}

/// Returns the number of a check, which is a hash of its text, file and line: the same each time, and in each process.
///
/// # Errors
/// When 4,096 others have numbers, or another has this one.
pub fn check_number(condition: &str, file: &str, line: u32) -> Result<u32, CheckNumberError> {
    let place = CheckPlace { condition: text(condition.as_bytes()), file: text(file.as_bytes()), line };
    let hash = schema::add_hashes(schema::of(&place.condition), &[schema::of(&place.file), line.into()]);
    number_place(&mut NUMBERED.lock(), (hash ^ hash >> 32) as u32, place)
}

/// Keeps other threads from giving checks numbers, as long as what it returns lives: while a child is made by `fork`, which has
/// locks as they were.
#[doc(hidden)]
pub fn hold_check_numbers() -> impl std::any::Any {
    NUMBERED.lock()
}

fn number_place(
    numbered: &mut BTreeMap<u32, CheckPlace>,
    number: u32,
    place: CheckPlace,
) -> Result<u32, CheckNumberError> {
    match numbered.get(&number) {
        Some(known) if *known == place => Ok(number),
        Some(_) => Err(CheckNumberError::Taken),
        None if numbered.len() >= MOST_NUMBERED => Err(CheckNumberError::TooMany),
        None => {
            numbered.insert(number, place);
            Ok(number)
        }
    }
}

/// Checks that failed, by launch.
#[derive(Default)]
pub struct Checks {
    failed: Mutex<HashMap<LaunchId, Vec<FailedCheck>>>,
    contexts: OnceLock<Box<ContextOf>>,
}

/// Says of a launch to whom its failures are told, and its kernel's name.
type ContextOf = dyn Fn(LaunchId) -> (LaunchId, Arc<str>) + Send + Sync;

impl Checks {
    /// Has `context_of` asked to whom failures of a launch are told, and for its kernel's name. Only the first such function
    /// counts.
    pub fn set_contexts(
        &self,
        context_of: impl Fn(LaunchId) -> (LaunchId, Arc<str>) + Send + Sync + 'static,
    ) {
        // A second one is dropped, as documented.
        let _ = self.contexts.set(Box::new(context_of));
    }

    /// Takes those of a launch, or of a context with the launches that hostcall has made with it, in the order in which they failed
    /// first.
    pub fn take(&self, launch: LaunchId) -> Vec<FailedCheck> {
        self.failed.lock().remove(&launch).unwrap_or_default()
    }

    /// Keeps a check, and tells of it if it is the first at its place.
    pub(super) fn has_failed(&self, check: FailedCheck) {
        let launch = check.launch;
        let (told_to, kernel) = self.contexts.get().map_or((launch, "a kernel".into()), |of| of(launch));
        if let Some(said) = self.add(told_to, FailedCheck { kernel: kernel.clone(), ..check }) {
            report::line(format_args!("a check of {kernel} (launch {launch}) has failed: {said}"));
        }
    }

    /// Returns what is to be told of it, if it is the first at its place.
    fn add(&self, launch: LaunchId, check: FailedCheck) -> Option<String> {
        let mut all = self.failed.lock();
        let of_launch = all.entry(launch).or_default();
        let is_full = of_launch.len() >= MOST_PLACES;
        let is_same = |known: &&mut FailedCheck| {
            (&known.condition, &known.file, known.line) == (&check.condition, &check.file, check.line)
        };
        match of_launch.iter_mut().find(is_same) {
            Some(known) => known.count += 1,
            None if is_full => of_launch[MOST_PLACES - 1].count += 1,
            None => {
                let told = check.to_string();
                of_launch.push(check);
                return Some(told);
            }
        }
        None
    }
}

impl FailedCheck {
    /// Reads the bytes of a post in pieces ([`hostcall_abi::service::number::CHECK`]). `None` when they are none.
    pub(super) fn from_bytes(bytes: &[u8], launch: LaunchId, lane: u8) -> Option<Self> {
        let (head, texts) = bytes.split_first_chunk::<40>()?;
        let [line, file, x, y, z, i, j, k, condition, _]: [u32; 10] =
            std::array::from_fn(|at| u32::from_le_bytes(head.as_chunks().0[at]));
        let (file, rest) = texts.split_at_checked(file as usize)?;
        let is_whole = rest.len() == condition as usize;
        let (file, condition) = (text(file), text(rest));
        is_whole.then_some(Self {
            condition,
            file,
            line,
            block: [x, y, z],
            thread: [i, j, k],
            lane,
            count: 1,
            launch,
            kernel: Arc::default(),
        })
    }
}

/// The handler of prints and of checks that have numbers.
pub(super) struct Foreign {
    pub stdio: Arc<Stdio>,
    pub checks: Arc<Checks>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_TEXT_BYTES)]).into_owned()
}

impl ForeignHandler for Foreign {
    fn print(&self, stream: u32, format: &[u8], arguments: &[u8]) -> Result<u64, CallError> {
        if format.len() > MAX_C_FORMAT_BYTES {
            return Err(CallError::TooLarge);
        }
        let format = Format::parse(format).map_err(|_| CallError::Malformed)?;
        let words: Vec<u64> = arguments.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut out = Vec::new();
        if let Err(error) = format.render_words(&words, &mut out) {
            let sink = self.stdio.sink_of(calling_launch());
            sink.refuse(Stream::from_number(stream)?, MAX_LINE_BYTES as u64, &"a line", &error);
            return Err(CallError::Malformed);
        }
        SharedHandler(self.stdio.clone()).write(stream, &out)?;
        Ok(out.len() as u64)
    }

    fn numbered_check_failed(&self, place: u64, block: u64) -> Result<(), CallError> {
        let part = |word: u64, at: u32, bits: u32| (word >> at) as u32 & (u32::MAX >> (32 - bits));
        let number = place as u32;
        let known = NUMBERED.lock().get(&number).cloned();
        // Its code may come from a process before, which alone knew the text.
        let unknown = || CheckPlace { condition: format!("check {number:#x}"), ..CheckPlace::default() };
        let CheckPlace { condition, file, line } = known.unwrap_or_else(unknown);
        let thread = [part(place, 32, 10), part(place, 42, 10), part(place, 52, 10)];
        let block = [part(block, 0, 32), part(block, 32, 16), part(block, 48, 16)];
        let (lane, launch) = (hostcall_service::caller().map_or(0, |caller| caller.lane), calling_launch());
        let kernel = Arc::default();
        self.checks.has_failed(FailedCheck {
            condition,
            file,
            line,
            block,
            thread,
            lane,
            count: 1,
            launch,
            kernel,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_place() {
        let checks = Checks::default();
        let check = |line, thread| FailedCheck {
            condition: "i < n".into(),
            file: "k.cu".into(),
            line,
            block: [1, 0, 0],
            thread: [thread, 0, 0],
            lane: thread as u8,
            count: 1,
            launch: LaunchId::new(1, 1),
            kernel: Arc::default(),
        };
        let launch = LaunchId::new(1, 1);
        let first = "k.cu:3: block (1, 0, 0), thread (7, 0, 0): `i < n` does not hold";
        assert_eq!(checks.add(launch, check(3, 7)).as_deref(), Some(first));
        assert_eq!(checks.add(launch, check(3, 8)), None);
        assert!((4..3 + MOST_PLACES as u32).all(|line| checks.add(launch, check(line, 0)).is_some()));
        assert_eq!(checks.add(launch, check(9999, 0)), None);
        let all = checks.take(launch);
        assert_eq!((all.len(), all[0].count, all[MOST_PLACES - 1].count), (MOST_PLACES, 2, 2));
        assert_eq!(all[0].to_string(), format!("{first}, nor for 1 more"));
        assert!(checks.take(launch).is_empty());
    }

    #[test]
    fn checks_have_one_number_each() {
        let number = check_number("x < limit", "kernel.py", 7);
        // As in each process and release: compiled code has it.
        assert_eq!(number, Ok(0x13bb_1abc));
        assert_eq!(check_number("x < limit", "kernel.py", 7), number);
        assert!(
            [("x < limit", "", 7), ("x < limit", "kernel.py", 8), ("x", "kernel.py", 7)]
                .into_iter()
                .all(|(condition, file, line)| check_number(condition, file, line)
                    .is_ok_and(|other| Ok(other) != number))
        );
        let mut numbered = BTreeMap::new();
        let place = |line| CheckPlace { line, ..CheckPlace::default() };
        let most = MOST_NUMBERED as u32;
        assert!((0..most).all(|line| number_place(&mut numbered, line, place(line)) == Ok(line)));
        assert_eq!(number_place(&mut numbered, most, place(most)), Err(CheckNumberError::TooMany));
        assert_eq!(number_place(&mut numbered, 7, place(7)), Ok(7));
        assert_eq!(number_place(&mut numbered, 7, place(8)), Err(CheckNumberError::Taken));
    }
}
