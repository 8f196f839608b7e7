//! Lines that say where they come from, and lines that are left out.

use super::sink::{Sink, Stream};
use crate::WavePlace;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::word::Owner;
use hostcall_service::Caller;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Which lines of kernels are printed, and whether each says where it comes from. All without either, unless something is
/// said. Kernels send the others too, and pay for it.
///
/// ```
/// use hostcall_server::services::{Builtins, Lines};
///
/// // The first lane of each workgroup of `relax` says where it is.
/// let lines = Lines::new().prefix().of_kernel("relax").of_lane(0);
/// let builtins = Builtins::builder().lines(lines).build()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    has_prefix: bool,
    kernel: Option<String>,
    workgroup: Option<[u32; 3]>,
    lane: Option<u32>,
}

impl Lines {
    /// All lines, as they are.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts the device, the kernel with its launch, the workgroup and the lane's index in it before each line:
    /// `[cpu, relax 0.1, workgroup 3.0.0, lane 17] text`. What a lane prints without a newline at its end goes on with what it
    /// prints next; where another lane comes between, its line begins on a new one.
    #[must_use]
    pub fn prefix(mut self) -> Self {
        self.has_prefix = true;
        self
    }

    /// Leaves out the lines of kernels of other names.
    #[must_use]
    pub fn of_kernel(mut self, name: impl Into<String>) -> Self {
        self.kernel = Some(name.into());
        self
    }

    /// Leaves out the lines of other workgroups.
    #[must_use]
    pub fn of_workgroup(mut self, position: [u32; 3]) -> Self {
        self.workgroup = Some(position);
        self
    }

    /// Leaves out the lines of lanes with another index in their workgroup, x fastest.
    #[must_use]
    pub fn of_lane(mut self, index: u32) -> Self {
        self.lane = Some(index);
        self
    }

    /// Says whether a line is printed. What is not known of it leaves it in.
    fn has(&self, kernel: &str, place: Option<([u32; 3], u32)>) -> bool {
        let is_other_place = place.is_some_and(|(workgroup, lane)| {
            self.workgroup.is_some_and(|only| only != workgroup) || self.lane.is_some_and(|only| only != lane)
        });
        !is_other_place && (kernel.is_empty() || self.kernel.as_ref().is_none_or(|only| only == kernel))
    }
}

/// Says of a caller which kernel its launch is of, and where in the grid its wave is: the given one, or without it the one that
/// has the caller's slot now.
type FindsPlace = Box<dyn Fn(Caller, Option<Owner>) -> (Arc<str>, Option<WavePlace>) + Send + Sync>;

/// The device whose kernels print.
struct Origin {
    device: String,
    wave_size: u32,
    finds_place: FindsPlace,
}

/// Who prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Printing {
    /// [`MarkedLines::number`]: devices that print to one sink have launches of the same ids.
    of: u64,
    launch: LaunchId,
    place: Option<([u32; 3], u32)>,
}

/// What is asked of lines, with the device that they come from once that is open.
pub(super) struct MarkedLines {
    /// No others of the process have it.
    number: u64,
    lines: Lines,
    origin: OnceLock<Origin>,
}

impl MarkedLines {
    /// `None` where nothing is asked.
    pub fn new(lines: Lines) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = || NEXT.fetch_add(1, Ordering::Relaxed);
        (lines != Lines::new()).then(|| Self { number: number(), lines, origin: OnceLock::new() })
    }

    /// Notes where the lines come from. The first device counts.
    pub fn set_origin(&self, device: String, wave_size: u32, finds_place: FindsPlace) {
        // A second one is dropped, as documented.
        let _ = self.origin.set(Origin { device, wave_size, finds_place });
    }

    /// Returns how what a lane prints is appended; `None` if it is left out, so that nobody need render it.
    /// `wave` is whose the lane is, where the caller's slot may be another's by now.
    pub fn admit(&self, caller: Caller, wave: Option<Owner>) -> Option<Admitted> {
        let Some(origin) = self.origin.get() else { return Some(Admitted(None)) };
        let (kernel, place) = (origin.finds_place)(caller, wave);
        let lane_of = |wave: u32| wave * origin.wave_size + u32::from(caller.lane);
        let place = place.map(|WavePlace { workgroup, wave }| (workgroup, lane_of(wave)));
        if !self.lines.has(&kernel, place) {
            return None;
        }
        if !self.lines.has_prefix {
            return Some(Admitted(None));
        }
        let mut prefix = format!("[{}, {kernel} {}", origin.device, caller.launch);
        if let Some(([x, y, z], lane)) = place {
            write!(prefix, ", workgroup {x}.{y}.{z}, lane {lane}").expect("a string takes it");
        }
        prefix.push_str("] ");
        let who = Printing { of: self.number, launch: caller.launch, place };
        Some(Admitted(Some((who, prefix))))
    }
}

/// What a lane prints is not left out. Who the lane is and the prefix of its lines, where they have one.
pub(super) struct Admitted(Option<(Printing, String)>);

impl Admitted {
    /// Appends what the lane printed at a time.
    pub fn append(&self, sink: &Sink, stream: Stream, text: &[u8]) {
        match &self.0 {
            Some((who, prefix)) => sink.append().marked(stream, *who, prefix.as_bytes(), text),
            None => sink.append().text(stream, |out| out.extend_from_slice(text)),
        }
    }
}

/// Appends text with the prefix before each line that begins in it. `unfinished` is whose line has not ended.
pub(super) fn mark(
    out: &mut Vec<u8>,
    unfinished: &mut Option<Printing>,
    who: Printing,
    prefix: &[u8],
    text: &[u8],
) {
    if text.is_empty() {
        return;
    }
    if unfinished.take_if(|other| *other != who).is_some() {
        out.push(b'\n');
    }
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if unfinished.take().is_none() {
            out.extend_from_slice(prefix);
        }
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            *unfinished = Some(who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::Capture;

    fn caller(lane: u8) -> Caller {
        Caller { launch: LaunchId::new(3, 1), slot: 7, lane }
    }

    /// The lines of a device.
    fn of_device(lines: Lines, device: &str) -> MarkedLines {
        let marked = MarkedLines::new(lines).unwrap();
        let finds = |caller: Caller, wave: Option<Owner>| {
            let of = |wave: Owner| WavePlace { workgroup: [wave.workgroup, 0, 0], wave: wave.wave };
            ("relax".into(), (caller.lane != 9).then(|| of(wave.unwrap_or_default())))
        };
        marked.set_origin(device.into(), 32, Box::new(finds));
        marked
    }

    /// What is printed of these, which lanes print one after the other.
    fn printed(lines: Lines, texts: &[(u8, &str)]) -> String {
        let (stdout, stderr) = (Capture::default(), Capture::default());
        let sink = Sink::writers(stdout.clone(), stderr);
        let marked = of_device(lines, "cpu");
        for (lane, text) in texts {
            let wave = Owner { workgroup: 5, wave: 1, ..Owner::default() };
            if let Some(admitted) = marked.admit(caller(*lane), Some(wave)) {
                admitted.append(&sink, Stream::Stdout, text.as_bytes());
            }
        }
        sink.flush().unwrap();
        stdout.text()
    }

    #[test]
    fn each_line_says_where_it_comes_from() {
        let texts = [(0, "a\n"), (1, "b\n\nc\n"), (1, ""), (9, "d\n")];
        let is = printed(Lines::new().prefix(), &texts);
        let [zero, one] = ["32", "33"].map(|lane| format!("[cpu, relax 3.1, workgroup 5.0.0, lane {lane}] "));
        assert_eq!(is, format!("{zero}a\n{one}b\n{one}\n{one}c\n[cpu, relax 3.1] d\n"));
    }

    #[test]
    fn unfinished_lines_go_on_with_their_lane_alone() {
        let is = printed(Lines::new().prefix(), &[(0, "a"), (0, "b\nc"), (1, "d"), (1, "e\n"), (0, "f\n")]);
        let [zero, one] = ["32", "33"].map(|lane| format!("[cpu, relax 3.1, workgroup 5.0.0, lane {lane}] "));
        assert_eq!(is, format!("{zero}ab\n{zero}c\n{one}de\n{zero}f\n"));
    }

    #[test]
    fn devices_with_one_sink_end_each_others_lines() {
        let stdout = Capture::default();
        let sink = Sink::writers(stdout.clone(), Capture::default());
        let devices = ["one", "two"].map(|device| of_device(Lines::new().prefix(), device));
        for (device, text) in [(0, "a"), (0, "b"), (1, "c\n"), (0, "d\n")] {
            devices[device].admit(caller(9), None).unwrap().append(&sink, Stream::Stdout, text.as_bytes());
        }
        sink.flush().unwrap();
        assert_eq!(stdout.text(), "[one, relax 3.1] ab\n[two, relax 3.1] c\n[one, relax 3.1] d\n");
    }

    #[test]
    fn lines_of_others_are_left_out() {
        let texts = [(0, "a\n"), (1, "b\n"), (9, "unknown\n")];
        let all = "a\nb\nunknown\n";
        for (lines, is) in [
            (Lines::new().of_lane(33), "b\nunknown\n"),
            (Lines::new().of_workgroup([5, 0, 0]), all),
            (Lines::new().of_workgroup([5, 0, 1]), "unknown\n"),
            (Lines::new().of_kernel("relax").of_lane(32), "a\nunknown\n"),
            (Lines::new().of_kernel("other"), ""),
        ] {
            assert_eq!(printed(lines.clone(), &texts), is, "{lines:?}");
        }
        assert!(MarkedLines::new(Lines::new()).is_none());
    }
}
