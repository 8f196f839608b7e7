//! `hostcall trace export`: a trace in formats that other programs read.

use super::{NO_END, Stop, cannot, open};
use crate::run::no_watch;
use crate::{Outcome, USAGE, complain};
use hostcall_trace::export::{self, ExportError, Exported, Format, LeftOut, Table};
use hostcall_trace::{Loss, StreamLosses, escaped};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::error::Error;
use std::fs::{File, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two lines of progress on a terminal.
const TELL_EVERY: Duration = Duration::from_millis(200);

pub(super) fn export(from: &Path, to: &Path, stream: Option<&str>) -> Outcome {
    let Some(format) = Format::of(to) else {
        let endings = Format::ENDINGS.map(|(ending, _)| format!(".{ending}")).join(", ");
        complain(format!("{} has none of the endings that say what to write: {endings}", to.display()));
        return Ok(USAGE);
    };
    let table = match stream {
        Some(_) if format == Format::Perfetto => {
            complain("a .pftrace has no table of a stream's records: name a .arrow, .parquet or .csv");
            return Ok(USAGE);
        }
        Some(stream) => Table::Stream(stream),
        None => Table::First,
    };
    let mut reader = match open(from) {
        Ok(reader) => reader,
        Err(Stop::Sentence(sentence)) => return Err(sentence.into()),
        Err(Stop::Output(error)) => return Err(error.into()),
    };
    let whole = std::fs::metadata(from).map_err(|error| cannot("read", from, error))?;
    // To make the file anew would empty what is to be read.
    if std::fs::metadata(to).is_ok_and(|there| (there.dev(), there.ino()) == (whole.dev(), whole.ino())) {
        return Err(format!("{} is the trace itself: name another file", to.display()).into());
    }
    let place = Destination::of(to)?;
    place.remove_at_signals().map_err(no_watch)?;
    let file = MadeLate { place: &place, file: None };
    let mut progress = Progress { of: whole.len(), told: Instant::now(), is_shown: false };
    let result = export::export(&mut reader, table, format, file, |bytes| progress.tell(bytes));
    progress.clear();
    if let Err(error @ ExportError::OnlyStreams) = result {
        complain(error);
        return Ok(USAGE);
    }
    let exported = result.map_err(|error| match error {
        ExportError::Read(error) => cannot("read on in", from, error),
        ExportError::Write(error) if place.is_written_to.load(Ordering::Relaxed) => {
            format!("{}; what is there is not whole", cannot("write", to, error))
        }
        ExportError::Write(error) => cannot("write", to, error),
        error => escaped(&error.to_string()).into_owned(),
    })?;
    place.put().map_err(|error| cannot("write", to, error))?;
    if !reader.is_complete() {
        complain(format!("{}: {NO_END}; what is there was exported", from.display()));
    }
    for Loss { how, count, what } in exported.losses.of_trace() {
        complain(format!("{}: {how}: {count} {what}", from.display()));
    }
    tell_what_is_not_there(format, &exported);
    Ok(0)
}

/// Tells of what an export does not have: what the stream lost, what there was no room for, and what it has no
/// place for.
fn tell_what_is_not_there(format: Format, exported: &Exported) {
    let StreamLosses { dropped_records, overwritten_bytes, lost_bytes, .. } = exported.stream_losses;
    if dropped_records > 0 {
        complain(format!("kernels have dropped {dropped_records} records of this stream"));
    }
    if overwritten_bytes > 0 {
        complain(format!("{overwritten_bytes} bytes of this stream were overwritten before they were read"));
    }
    if lost_bytes > 0 {
        complain(format!(
            "{lost_bytes} bytes of this stream could not be read or written when it was recorded"
        ));
    }
    let LeftOut { spans, points, .. } = exported.left_out;
    match format {
        _ if spans == 0 => {}
        Format::Perfetto => complain(format!(
            "{spans} spans lie in 256 others and were left out: a .csv, .arrow or .parquet has them"
        )),
        _ => complain(format!(
            "{spans} spans have begun while too many others had: those without an end were left out"
        )),
    }
    if points > 0 {
        complain(format!(
            "{points} trace points were left out, since a .pftrace has a limited number of tracks: a .csv, .arrow or \
             .parquet has them"
        ));
    }
    let others = exported.other_streams.join(", ");
    let others = escaped(&others);
    match format {
        _ if others.is_empty() => {}
        Format::Perfetto => complain(format!(
            "a .pftrace has no records of streams, which `--stream` exports to a .arrow, .parquet or .csv: {others}"
        )),
        _ => complain(format!("the trace has other streams, which `--stream` exports: {others}")),
    }
}

/// Where an export goes: to a file beside the one that is named, which takes its place once it is whole. So nothing that is cut
/// has the name, and what was there stays until then.
struct Destination {
    /// The file that is named, without links.
    file: PathBuf,
    beside: PathBuf,
    permissions: Option<Permissions>,
    /// It is no plain file, or nothing can be made beside it.
    is_direct: AtomicBool,
    /// Something was written to the file that is named.
    is_written_to: AtomicBool,
}

impl Destination {
    fn of(to: &Path) -> Result<Self, Box<dyn Error>> {
        let there = std::fs::metadata(to).ok();
        let is_link = there.is_none() && to.is_symlink();
        let is_direct = is_link || there.as_ref().is_some_and(|there| !there.is_file());
        let file = match there {
            // What may not be written to is not replaced either.
            Some(_) if !is_direct => {
                File::options().write(true).open(to).map_err(|error| cannot("write", to, error))?;
                to.canonicalize().map_err(|error| cannot("write", to, error))?
            }
            Some(_) => to.canonicalize().map_err(|error| cannot("write", to, error))?,
            None => to.to_owned(),
        };
        let ending = file.extension().unwrap_or_default().to_string_lossy();
        let beside = file.with_extension(format!("{ending}.{}.new", std::process::id()));
        let permissions = there.map(|there| there.permissions());
        let [is_direct, is_written_to] = [is_direct, false].map(AtomicBool::new);
        Ok(Self { file, beside, permissions, is_direct, is_written_to })
    }

    /// Has the file that is not whole removed when a signal ends the process.
    fn remove_at_signals(&self) -> io::Result<()> {
        let ignored = ignored_signals();
        let mut signals = Signals::new(
            [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0),
        )?;
        let beside = self.beside.clone();
        crate::spawn("hostcall-signals", move || {
            if let Some(signal) = signals.forever().next() {
                let _ = std::fs::remove_file(beside);
                let _ = emulate_default_handler(signal);
            }
        })
    }

    fn open(&self) -> io::Result<File> {
        if !self.is_direct.load(Ordering::Relaxed) {
            match File::create(&self.beside) {
                Ok(file) => {
                    if let Some(permissions) = &self.permissions {
                        // They are no part of what is exported.
                        let _ = file.set_permissions(permissions.clone());
                    }
                    return Ok(file);
                }
                // The folder may be another user's.
                Err(_) if self.permissions.is_some() => self.is_direct.store(true, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
        }
        let file = File::create(&self.file)?;
        self.is_written_to.store(true, Ordering::Relaxed);
        Ok(file)
    }

    /// Gives what was written the name, if anything was.
    fn put(&self) -> io::Result<()> {
        match self.beside.exists() {
            true => std::fs::rename(&self.beside, &self.file),
            false => Ok(()),
        }
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        // There is none, or it is not whole.
        let _ = std::fs::remove_file(&self.beside);
    }
}

/// A file that is made when something is written to it: one that is there stays as it is if the trace has nothing to export.
struct MadeLate<'a> {
    place: &'a Destination,
    file: Option<File>,
}

impl Write for MadeLate<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            file => file.insert(self.place.open()?).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

/// A line on the standard error that says how far an export is, if that is a terminal.
struct Progress {
    /// Bytes of the trace; 0 of a pipe, of which nobody knows it.
    of: u64,
    told: Instant,
    is_shown: bool,
}

impl Progress {
    fn tell(&mut self, bytes: u64) {
        if self.told.elapsed() < TELL_EVERY || !io::stderr().is_terminal() {
            return;
        }
        (self.told, self.is_shown) = (Instant::now(), true);
        // Nobody can be told that standard error is closed.
        let _ = write!(io::stderr(), "\r{}", progress(bytes, self.of));
    }

    /// Removes the line.
    fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Says how much of a trace of so many bytes was exported; more, if a run still writes it.
fn progress(bytes: u64, of: u64) -> String {
    let megabytes = |bytes: u64| bytes / 1_000_000;
    match of {
        0 => format!("{} MB", megabytes(bytes)),
        of => {
            let part = (bytes as f64 / of as f64 * 100.0).min(100.0);
            format!("{part:.0} % of {} MB", megabytes(of.max(bytes)))
        }
    }
}

/// The signals that whoever started the process has it ignore, as `nohup` and shells in the background do: a bit for each, from
/// signal 1 on.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_of_what_is_known() {
        assert_eq!(progress(5_000_000, 20_000_000), "25 % of 20 MB");
        assert_eq!(progress(5_000_000, 0), "5 MB");
        assert_eq!(progress(30_000_000, 20_000_000), "100 % of 30 MB");
    }
}
