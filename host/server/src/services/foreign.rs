//! What kernels print and check that other compilers made, by `hostcall_device.h`.

use super::sink::Stream;
use super::stdio::Stdio;
use super::{MAX_C_FORMAT_BYTES, SharedHandler, calling_launch};
use crate::engine::report;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_device::services::{ForeignHandler, StdoutHandler};
use hostcall_format::c::{Format, MAX_LINE_BYTES};
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Places of which failures are kept, a launch. Failures at others are counted with the last.
const MOST_PLACES: usize = 256;

/// Bytes to which texts are cut.
const MOST_TEXT_BYTES: usize = 1024;

/// A check of a kernel's that failed, with the first thread that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCheck {
    /// What did not hold.
    pub condition: String,
    /// Source file.
    pub file: String,
    /// Line in the file, from 1.
    pub line: u32,
    /// Position of the first block in the grid.
    pub block: [u32; 3],
    /// Position of the first thread in its block.
    pub thread: [u32; 3],
    /// How many threads found it.
    pub count: u64,
}

impl fmt::Display for FailedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, file, line, block: [x, y, z], thread: [i, j, k], count } = self;
        write!(
            f,
            "{file}:{line}: block ({x}, {y}, {z}), thread ({i}, {j}, {k}): `{condition}` does not hold"
        )?;
        if *count > 1 { write!(f, ", nor for {} more", count - 1) } else { Ok(()) }
    }
}

/// Checks that failed, by launch.
#[derive(Default)]
pub struct Checks(Mutex<HashMap<LaunchId, Vec<FailedCheck>>>);

impl Checks {
    /// Takes those of a launch, or of a context: in the order in which they failed first.
    pub fn take(&self, launch: LaunchId) -> Vec<FailedCheck> {
        self.0.lock().remove(&launch).unwrap_or_default()
    }

    /// Returns what is to be told of it, if it is the first at its place.
    fn add(&self, launch: LaunchId, check: FailedCheck) -> Option<String> {
        let mut all = self.0.lock();
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

/// The handler of both.
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

    fn check_failed(
        &self,
        line: u32,
        block: [u32; 3],
        thread: [u32; 3],
        file: &[u8],
        condition: &[u8],
    ) -> Result<(), CallError> {
        let check =
            FailedCheck { condition: text(condition), file: text(file), line, block, thread, count: 1 };
        if let Some(said) = self.checks.add(calling_launch(), check) {
            report::line(format_args!("a check of a kernel has failed: {said}"));
        }
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
            count: 1,
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
}
