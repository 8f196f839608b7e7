//! What kernels report of themselves: panics and exit codes, by launch, and printing.

use super::calling_launch;
use super::pieces::Begun;
use super::print::{self, Printer, too_long};
use super::sink::Stream;
use crate::engine::rare::Rare;
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_abi::status::CallError;
use hostcall_device::system::SystemHandler;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Bytes to which a panic's message and file name are cut, before [`CUT`].
const MAX_TEXT_BYTES: usize = 4096;

/// What a text ends with that was cut.
const CUT: &str = " [cut]";

/// A kernel's panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// The message; one that was cut after 4 KiB ends with ` [cut]`.
    pub message: String,
    /// Source file.
    pub file: String,
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in the line, from 1.
    pub column: u32,
    /// Position of the workgroup in the grid.
    pub workgroup: [u32; 3],
    /// The lane's index in the workgroup.
    pub lane: u32,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, file, line, column, workgroup: [x, y, z], lane } = self;
        write!(f, "lane {lane} of workgroup ({x}, {y}, {z}) panicked at {file}:{line}:{column}: {message}")
    }
}

/// What a launch's kernels reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first panic.
    pub panic: Option<Panic>,
    /// Panics after the first.
    pub other_panics: u64,
    /// The first exit code.
    pub exit_code: Option<i32>,
}

/// Why a launch should end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// A lane panicked.
    Panicked,
    /// The program asked to exit with this code.
    Exited(i32),
}

type OnEnd = Box<dyn Fn(LaunchId, EarlyEnd) + Send + Sync>;

/// The reports of all launches. Clones share them.
#[derive(Clone, Default)]
pub struct Reports(Arc<Shared>);

#[derive(Default)]
struct Shared {
    by_launch: Rare<HashMap<LaunchId, Report>>,
    /// What came in pieces of panics and texts, and is not done yet.
    begun: Rare<Begun>,
    /// The same of printed lines.
    lines: Rare<Begun>,
    on_end: OnceLock<OnEnd>,
}

impl Reports {
    /// Has `on_end` called, on a server's thread, when a launch first reports a panic or an exit code. Only
    /// the first such function counts.
    pub fn on_end(&self, on_end: impl Fn(LaunchId, EarlyEnd) + Send + Sync + 'static) {
        // A second one is dropped, as documented.
        let _ = self.0.on_end.set(Box::new(on_end));
    }

    /// Takes what a launch reported. To be called when it has ended, or reports pile up.
    pub fn take(&self, launch: LaunchId) -> Report {
        self.forget(LaunchIds::new(launch, 1));
        self.0.by_launch.change_some(|reports| reports.remove(&launch)).flatten().unwrap_or_default()
    }

    /// Drops what these launches, which have ended, posted the beginning of.
    pub fn forget(&self, launches: LaunchIds) {
        self.0.begun.change_some(|begun| begun.forget(launches));
        self.0.lines.change_some(|lines| lines.forget(launches));
    }

    /// Returns which of these launches have reported something.
    pub fn reporting(&self, launches: LaunchIds) -> Vec<LaunchId> {
        let of = |reports: &mut HashMap<LaunchId, Report>| {
            reports.keys().copied().filter(|launch| launches.contains(*launch)).collect()
        };
        self.0.by_launch.change_some(of).unwrap_or_default()
    }

    /// Adds a panic, which has an effect as of a call.
    pub(super) fn add_panic(&self, launch: LaunchId, panic: Panic) {
        self.add(launch, EarlyEnd::Panicked, |report| {
            if report.panic.is_some() {
                report.other_panics += 1;
                return false;
            }
            report.panic = Some(Panic { message: cut(&panic.message), file: cut(&panic.file), ..panic });
            true
        });
    }

    /// Takes the text that the lane of this name has posted for the call that the calling handler handles.
    pub fn take_text(&self, lane: u64) -> Option<String> {
        let launch = calling_launch();
        self.0.begun.change_some(|begun| begun.take_text(launch, lane)).flatten()
    }

    /// Changes what there is of panics and texts that are not complete.
    pub(super) fn change_begun<R>(&self, change: impl FnOnce(&mut Begun) -> R) -> R {
        self.0.begun.change(change)
    }

    /// Printed lines that are not complete.
    pub(super) fn lines(&self) -> &Rare<Begun> {
        &self.0.lines
    }

    fn add(&self, launch: LaunchId, end: EarlyEnd, add: impl FnOnce(&mut Report) -> bool) {
        let first = self.0.by_launch.change(|reports| add(reports.entry(launch).or_default()));
        if let (true, Some(on_end)) = (first, self.0.on_end.get()) {
            on_end(launch, end);
        }
    }
}

/// The start of `text` that has at most [`MAX_TEXT_BYTES`], and [`CUT`] where that is not all.
fn cut(text: &str) -> String {
    match text.len() {
        ..=MAX_TEXT_BYTES => text.to_owned(),
        _ => text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned() + CUT,
    }
}

/// The handler.
pub(super) struct SystemReports {
    pub reports: Reports,
    pub printer: Arc<Printer>,
}

impl SystemReports {
    fn refuse_text(&self, stream: u32, bytes: u64, reason: &dyn fmt::Display) -> Result<(), CallError> {
        self.printer.refuse_text(None, Stream::from_number(stream)?, bytes, reason);
        Ok(())
    }
}

impl SystemHandler for SystemReports {
    fn panic(
        &self,
        x: u32,
        y: u32,
        z: u32,
        lane: u32,
        line: u32,
        column: u32,
        message: &str,
        file: &str,
    ) -> Result<(), CallError> {
        let (message, file) = (message.to_owned(), file.to_owned());
        let panic = Panic { message, file, line, column, workgroup: [x, y, z], lane };
        self.reports.add_panic(calling_launch(), panic);
        Ok(())
    }

    fn exit(&self, code: i32) -> Result<(), CallError> {
        self.reports.add(calling_launch(), EarlyEnd::Exited(code), |report| {
            let first = report.exit_code.is_none();
            report.exit_code.get_or_insert(code);
            first
        });
        Ok(())
    }

    fn main_returned(&self, code: i32) -> Result<(), CallError> {
        self.reports.0.by_launch.change(|reports| {
            reports.entry(calling_launch()).or_default().exit_code.get_or_insert(code);
        });
        Ok(())
    }

    fn register_format(&self, lane: u64, tags: u64, stream: u32, text_bytes: u64) -> Result<u32, CallError> {
        // One that is longer than any that is registered was not sent as a whole.
        let text = self.reports.take_text(lane);
        let registered = match text {
            Some(text) if text.len() as u64 == text_bytes => self.printer.register(tags, stream, &text),
            _ if text_bytes > print::MAX_TEXT_BYTES as u64 => Err(CallError::TooLarge),
            _ => Err(CallError::Malformed),
        };
        registered.inspect_err(|error| {
            // The line that the lane would print by this format is lost.
            if *error == CallError::TooLarge {
                let _ = self.refuse_text(stream, text_bytes, error);
            }
        })
    }

    fn line_too_long(&self, stream: u32, bytes: u64) -> Result<(), CallError> {
        self.refuse_text(stream, bytes, &too_long())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::sink::Sink;
    use crate::services::stdio::Stdio;
    use hostcall_service::{Caller, called_by};

    type Ends = Arc<hostcall_locks::Mutex<Vec<(LaunchId, EarlyEnd)>>>;

    fn system() -> (SystemReports, Ends) {
        let stdio = Arc::new(Stdio::new(std::io::empty(), Sink::writer(std::io::sink())));
        let reports = Reports::default();
        let ends = Ends::default();
        let seen = Arc::clone(&ends);
        reports.on_end(move |launch, end| seen.lock().push((launch, end)));
        (SystemReports { reports, printer: Arc::new(Printer::new(stdio)) }, ends)
    }

    #[test]
    fn the_first_panic_of_each_launch_is_kept() {
        let (system, ends) = system();
        let [one, two] = [1, 2].map(|index| LaunchId::new(index, 1));
        for (launch, message) in [(one, "first"), (one, "second"), (two, "other"), (one, "third")] {
            called_by(Caller { launch, ..Caller::default() }, || {
                system.panic(1, 2, 3, 4, 5, 6, message, "main.rs").unwrap();
            });
        }
        let report = system.reports.take(one);
        assert_eq!(report.other_panics, 2);
        assert_eq!(
            report.panic.unwrap().to_string(),
            "lane 4 of workgroup (1, 2, 3) panicked at main.rs:5:6: first"
        );
        assert_eq!(system.reports.take(one), Report::default());
        assert_eq!(system.reports.take(two).panic.unwrap().message, "other");
        assert_eq!(*ends.lock(), [(one, EarlyEnd::Panicked), (two, EarlyEnd::Panicked)]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let (system, _) = system();
        system.panic(0, 0, 0, 0, 0, 0, &"é€".repeat(10_000), &"x".repeat(5000)).unwrap();
        let panic = system.reports.take(LaunchId::NONE).panic.unwrap();
        let message = panic.message.strip_suffix(CUT).unwrap();
        assert!(message.len() > MAX_TEXT_BYTES - 3 && message.len() <= MAX_TEXT_BYTES);
        assert_eq!(panic.file.len(), MAX_TEXT_BYTES + CUT.len());
        system.panic(0, 0, 0, 0, 0, 0, &"x".repeat(MAX_TEXT_BYTES), "").unwrap();
        assert_eq!(system.reports.take(LaunchId::NONE).panic.unwrap().message.len(), MAX_TEXT_BYTES);
    }

    #[test]
    fn the_first_exit_code_counts() {
        let (system, ends) = system();
        system.exit(3).unwrap();
        system.exit(0).unwrap();
        assert_eq!(system.reports.take(LaunchId::NONE).exit_code, Some(3));
        assert_eq!(*ends.lock(), [(LaunchId::NONE, EarlyEnd::Exited(3))]);
    }
}
