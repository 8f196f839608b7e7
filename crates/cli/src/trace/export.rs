//! `hostcall trace export`: a trace in formats that other programs read.

use super::{NO_END, Stop, cannot, open};
use crate::{Outcome, USAGE, complain};
use hostcall_trace::export::{self, ExportError, Format, LeftOut, Table};
use hostcall_trace::{Loss, StreamLosses, escaped};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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
    let is_made = AtomicBool::new(false);
    let file = MadeLate { path: to, file: None, is_made: &is_made };
    let mut progress = Progress { of: whole.len(), told: Instant::now(), is_shown: false };
    let result = export::export(&mut reader, table, format, file, |bytes| progress.tell(bytes));
    progress.clear();
    if let Err(error @ ExportError::OnlyStreams) = result {
        complain(error);
        return Ok(USAGE);
    }
    let exported = result.map_err(|error| match error {
        ExportError::Read(error) => cannot("read on in", from, error),
        ExportError::Write(error) if is_made.into_inner() => {
            format!("{}; what is there is not whole", cannot("write", to, error))
        }
        ExportError::Write(error) => cannot("write", to, error),
        error => escaped(&error.to_string()).into_owned(),
    })?;
    if !reader.is_complete() {
        complain(format!("{}: {NO_END}; what is there was exported", from.display()));
    }
    for Loss { how, count, what } in exported.losses.of_trace() {
        complain(format!("{}: {how}: {count} {what}", from.display()));
    }
    let StreamLosses { dropped_records, overwritten_bytes, .. } = exported.stream_losses;
    if dropped_records > 0 {
        complain(format!("kernels have dropped {dropped_records} records of this stream"));
    }
    if overwritten_bytes > 0 {
        complain(format!("{overwritten_bytes} bytes of this stream were overwritten before they were read"));
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
    Ok(0)
}

/// A file that is made when something is written to it: one that is there stays as it is if the trace has nothing to export.
struct MadeLate<'a> {
    path: &'a Path,
    file: Option<File>,
    is_made: &'a AtomicBool,
}

impl Write for MadeLate<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            file => file.insert(File::create(self.path)?),
        };
        self.is_made.store(true, Ordering::Relaxed);
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

/// A line on the standard error that says how far an export is, if that is a terminal.
struct Progress {
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
        let part = bytes as f64 / self.of.max(1) as f64 * 100.0;
        // Nobody can be told that standard error is closed.
        let _ = write!(io::stderr(), "\r{part:.0} % of {} MB", self.of / 1_000_000);
    }

    /// Removes the line.
    fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
