//! Traces for the programs of others: [Perfetto](https://ui.perfetto.dev), and tables as Arrow IPC, Parquet and CSV.
//!
//! A table has a row for each call, launch and count of posts, as [`COLUMNS`] says. What a row does not have, or the
//! trace does not know, is null. In all formats the memory that an export takes does not grow with the trace.

mod arrow;
mod csv;
mod perfetto;
mod rows;
mod tracks;

use crate::names::Names;
use crate::reader::Reader;
use crate::record::Event;
pub use rows::{COLUMNS, Type};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

/// Bytes of the trace between two reports of progress.
const PROGRESS_BYTES: u64 = 8 << 20;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// A format to export to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protobuf: a process for each device, with tracks for launches, for the slots of waves, and for handlers,
    /// flows from calls to handlers, and counters of calls and posts a second.
    Perfetto,
    /// Arrow's file format for IPC.
    Arrow,
    /// Parquet, compressed by LZ4.
    Parquet,
    /// Comma-separated values with a line of names; null is empty.
    Csv,
}

impl Format {
    /// The endings of files, each with its format.
    pub const ENDINGS: [(&'static str, Self); 4] =
        [("pftrace", Self::Perfetto), ("arrow", Self::Arrow), ("parquet", Self::Parquet), ("csv", Self::Csv)];

    /// Returns the format that a file's ending means.
    pub fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?;
        Self::ENDINGS.into_iter().find(|(name, _)| ending == *name).map(|(_, format)| format)
    }
}

/// Why an export was not finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The trace could not be read on.
    #[error("cannot read on in the trace: {0}")]
    Read(#[source] io::Error),
    /// The output took no more.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Something that takes a trace's events.
trait Export {
    /// Takes an event. `names` has what events before said, and what this one says.
    fn event(&mut self, names: &Names, event: &Event) -> io::Result<()>;

    /// Writes what is left, at the end of the trace.
    fn finish(&mut self, names: &Names) -> io::Result<()>;
}

/// Exports what of a trace was not read yet. `progress` is called now and then with the [bytes read](Reader::bytes_read).
///
/// # Errors
/// When the trace cannot be read or the output not be written; part of the output is written then. A trace that was
/// cut or damaged is no error.
pub fn export<R: Read, W: Write + Send>(
    reader: &mut Reader<R>,
    format: Format,
    to: W,
    mut progress: impl FnMut(u64),
) -> Result<(), ExportError> {
    let mut to = BufWriter::with_capacity(WRITE_BYTES, to);
    let began_unix_ns = reader.header().began_unix_ns;
    {
        let to = &mut to;
        let mut export: Box<dyn Export + '_> = match format {
            Format::Perfetto => Box::new(perfetto::Perfetto::new(to, began_unix_ns)),
            Format::Arrow => Box::new(rows::Rows::new(arrow::Ipc::new(to, began_unix_ns)?)),
            Format::Parquet => Box::new(rows::Rows::new(arrow::Parquet::new(to, began_unix_ns)?)),
            Format::Csv => Box::new(rows::Rows::new(csv::Csv::new(to)?)),
        };
        let (mut names, mut next_report) = (Names::default(), 0);
        while let Some(event) = reader.next() {
            let event = event.map_err(ExportError::Read)?;
            names.note(&event);
            export.event(&names, &event)?;
            if reader.bytes_read() >= next_report {
                progress(reader.bytes_read());
                next_report = reader.bytes_read() + PROGRESS_BYTES;
            }
        }
        export.finish(&names)?;
        progress(reader.bytes_read());
    }
    Ok(to.flush()?)
}
