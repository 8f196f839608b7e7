//! Traces for the programs of others: [Perfetto](https://ui.perfetto.dev), and tables as Arrow IPC, Parquet and CSV.
//!
//! A table has a row for each call, launch, count of posts and trace point, as [`COLUMNS`] says. What a row does not have, or the
//! trace does not know, is null. Or it has a row for each record of a stream: who wrote its page, and a
//! column for each of its numbers. In all formats the memory that an export takes does not grow with the
//! trace.

mod arrow;
mod behind;
mod csv;
mod open_spans;
mod perfetto;
mod records;
mod rows;
mod tracks;
mod waves;

use crate::descriptor::Streams;
use crate::losses::{Losses, StreamLosses};
use crate::names::Names;
use crate::reader::Reader;
use crate::record::Event;
use behind::Writer;
use perfetto::{Part, Perfetto};
use records::Described;
pub use rows::{COLUMNS, Type};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// Bytes of the trace between two reports of progress.
const PROGRESS_BYTES: u64 = 8 << 20;

/// A format to export to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protobuf: a process for each device, with tracks for launches, for the slots of waves, for handlers, and for waves
    /// with trace points, flows from calls to handlers, and counters of calls and posts a second.
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
    /// The trace has no stream of this name.
    #[error("the trace has no stream {wanted:?} near its begin; {}", match &**.there { "" => "it has none there".to_owned(), there => format!("there is: {there}") })]
    NoStream {
        /// The name.
        wanted: String,
        /// Names of streams that it has.
        there: String,
    },
    /// The trace does not say what the records of this stream consist of.
    #[error(
        "the trace does not say what the records of stream {0:?} consist of: `hostcall trace dump` prints their words"
    )]
    NotDescribed(String),
    /// The trace has pages of a stream that it does not name.
    #[error("the trace does not say what stream {0} is: `hostcall trace dump` prints its words")]
    Unnamed(u16),
    /// The trace has records of streams alone, which Perfetto's format has no place for.
    #[error(
        "a .pftrace has no table of a stream's records, and the trace has nothing else: name a .arrow, .parquet or .csv"
    )]
    OnlyStreams,
}

/// Something that takes a trace's events.
trait Export {
    /// Takes an event. `names` has what events before said, and what this one says.
    fn event(&mut self, names: &Names, event: &Event) -> io::Result<()>;

    /// Writes what is left, at the end of the trace.
    fn finish(&mut self, names: &Names) -> io::Result<()>;

    /// What the format had no place for.
    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }
}

/// What of kernels' trace points was not exported, though the trace has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Spans: of a .pftrace those that lie in 256 others, of a table those that began while too many had not ended, which have no
    /// row if they do not end.
    pub spans: u64,
    /// Trace points of any kind, for which a .pftrace had no track.
    pub points: u64,
}

/// What a table is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table<'a> {
    /// The calls, launches and posts, or, of a trace that begins with pages of a stream, that stream's
    /// records.
    #[default]
    First,
    /// The records of the stream with this name.
    Stream(&'a str),
}

/// What was exported, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// The stream whose records were exported, if it was a stream.
    pub stream: Option<Arc<str>>,
    /// Streams that the trace has besides, whose records were not exported.
    pub other_streams: Vec<Arc<str>>,
    /// What the trace lacks, as it says itself.
    pub losses: Losses,
    /// What the stream that was exported lacks.
    pub stream_losses: StreamLosses,
    /// What the format had no place for.
    pub left_out: LeftOut,
}

/// Events that are looked at before it is known what a table has.
const MOST_BEFORE: usize = 1 << 12;

/// Exports what of a trace was not read yet. `progress` is called now and then with the [bytes read](Reader::bytes_read).
/// Perfetto's format has all calls, launches and posts; a table has what `table` says.
///
/// # Errors
/// When the trace cannot be read or the output not be written; part of the output is written then. A trace that was
/// cut or damaged is no error.
pub fn export<R: Read, W: Write + Send>(
    reader: &mut Reader<R>,
    table: Table<'_>,
    format: Format,
    to: W,
    progress: impl FnMut(u64),
) -> Result<Exported, ExportError> {
    let began_unix_ns = reader.header().began_unix_ns;
    export_part(reader, table, format, to, progress, began_unix_ns, Part::default())
}

/// Traces of several processes in one file of Perfetto's format, on one time line.
#[derive(Debug)]
pub struct Joined<W> {
    to: W,
    began_unix_ns: u64,
    parts: u16,
}

impl<W: Write + Send> Joined<W> {
    /// Begins a file whose time line begins then, in ns since 1970: with the first of its traces, or before.
    pub fn new(to: W, began_unix_ns: u64) -> Self {
        Self { to, began_unix_ns, parts: 0 }
    }

    /// Adds a trace, whose processes have `name` before theirs. Its machine's clock is ahead of the file's by `ahead_ns`.
    ///
    /// # Errors
    /// As for [`export`]; the file is as it was then, or ends within this trace. Nothing is added to a file that has 65,535 traces.
    pub fn add<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        name: &str,
        ahead_ns: i64,
    ) -> Result<Exported, ExportError> {
        let began = i128::from(reader.header().began_unix_ns) - i128::from(ahead_ns);
        let shift = (began - i128::from(self.began_unix_ns)).max(0);
        let part = Part {
            number: self.parts,
            name: format!("{name}: "),
            shift_ns: u64::try_from(shift).unwrap_or(u64::MAX),
        };
        self.parts =
            self.parts.checked_add(1).ok_or_else(|| io::Error::other("the file has too many traces"))?;
        let nothing = |_| ();
        export_part(reader, Table::First, Format::Perfetto, &mut self.to, nothing, self.began_unix_ns, part)
    }
}

fn export_part<R: Read, W: Write + Send>(
    reader: &mut Reader<R>,
    table: Table<'_>,
    format: Format,
    to: W,
    mut progress: impl FnMut(u64),
    began_unix_ns: u64,
    part: Part,
) -> Result<Exported, ExportError> {
    let (mut before, mut streams) = (VecDeque::new(), Streams::default());
    let mut exported = Exported::default();
    let described = match format {
        Format::Perfetto => {
            look_for_calls(reader, &mut before, &mut streams)?;
            None
        }
        _ => select(reader, table, &mut before, &mut streams)?,
    };
    exported.stream = described.as_ref().map(|described| described.name.clone());
    let number = described.as_ref().map(|described| described.number);
    let mut run = |export: &mut dyn Export| -> Result<(), ExportError> {
        let (mut names, mut next_report) = (Names::default(), 0);
        while let Some(event) = before.pop_front().map(Ok).or_else(|| reader.next()) {
            let event = event.map_err(ExportError::Read)?;
            names.note(&event);
            streams.note(&event);
            exported.losses.note(&event);
            export.event(&names, &event)?;
            if reader.bytes_read() >= next_report {
                progress(reader.bytes_read());
                next_report = reader.bytes_read() + PROGRESS_BYTES;
            }
        }
        export.finish(&names)?;
        exported.left_out = export.left_out();
        progress(reader.bytes_read());
        Ok(())
    };
    std::thread::scope(|scope| match (described, format) {
        (described, Format::Perfetto | Format::Csv) => {
            let mut writer = Writer::new(scope, to)?;
            match described {
                _ if format == Format::Perfetto => run(&mut Perfetto::new(&mut writer, began_unix_ns, part)),
                Some(of) => run(&mut records::RecordCsv::new(of, &mut writer)?),
                None => run(&mut rows::Rows::new(csv::Csv::new(&mut writer)?)),
            }?;
            Ok(writer.finish()?)
        }
        (Some(of), format) => {
            let schema = of.schema(began_unix_ns);
            let sink = arrow::sink(scope, to, format, schema.clone(), Vec::new())?;
            run(&mut records::RecordBatches::new(of, schema, sink))
        }
        (None, format) => run(&mut rows::Rows::new(arrow::Batches::new(scope, to, format, began_unix_ns)?)),
    })?;
    exported.stream_losses = number.map(|number| exported.losses.of_stream(number)).unwrap_or_default();
    let others = streams.iter().filter(|(other, _)| Some(*other) != number);
    exported.other_streams = others.map(|(_, stream)| stream.name.clone()).take(MOST_NAMED).collect();
    Ok(exported)
}

/// Streams that a sentence names.
const MOST_NAMED: usize = 16;

/// Says whether an event is of the table of calls, launches and posts.
fn is_calls(event: &Event) -> bool {
    matches!(event, Event::Call(_) | Event::LaunchBegan { .. } | Event::Posts(_) | Event::Point(_))
}

/// Reads on until there is something for Perfetto, and keeps what it read, without pages: they are large, and not exported.
fn look_for_calls<R: Read>(
    reader: &mut Reader<R>,
    before: &mut VecDeque<Event>,
    streams: &mut Streams,
) -> Result<(), ExportError> {
    let mut has_streams = false;
    while before.len() < MOST_BEFORE {
        let Some(event) = reader.next() else {
            return if has_streams { Err(ExportError::OnlyStreams) } else { Ok(()) };
        };
        let event = event.map_err(ExportError::Read)?;
        streams.note(&event);
        let is_page = matches!(event, Event::Page(_));
        has_streams |= is_page || matches!(event, Event::Stream { .. });
        let is_found = is_calls(&event);
        if !is_page {
            before.push_back(event);
        }
        if is_found {
            break;
        }
    }
    Ok(())
}

/// Reads on until it is clear what the table has, and keeps what it read.
fn select<R: Read>(
    reader: &mut Reader<R>,
    table: Table<'_>,
    before: &mut VecDeque<Event>,
    streams: &mut Streams,
) -> Result<Option<Described>, ExportError> {
    let described = |number: u16, streams: &Streams| match streams.get(number) {
        None => Err(ExportError::Unnamed(number)),
        Some(stream) => Described::new(number, stream)
            .map(Some)
            .ok_or_else(|| ExportError::NotDescribed(stream.name.to_string())),
    };
    while before.len() < MOST_BEFORE
        && let Some(event) = reader.next()
    {
        let event = event.map_err(ExportError::Read)?;
        streams.note(&event);
        let selected = match (&event, table) {
            (Event::Stream { stream, name, .. }, Table::Stream(wanted)) if **name == *wanted => Some(*stream),
            (Event::Page(page), Table::First) => Some(page.stream),
            _ => None,
        };
        let is_calls = is_calls(&event);
        // Pages that come before their stream's name are no stream's that is wanted, and large.
        if !(matches!(event, Event::Page(_)) && matches!(table, Table::Stream(_))) {
            before.push_back(event);
        }
        if let Some(number) = selected {
            return described(number, streams);
        }
        if is_calls && table == Table::First {
            return Ok(None);
        }
    }
    match table {
        // A stream without a page is a table without rows.
        Table::First => match streams.iter().next() {
            Some((number, _)) if before.len() < MOST_BEFORE => described(number, streams),
            _ => Ok(None),
        },
        Table::Stream(wanted) => {
            let there = streams.iter().map(|(_, stream)| &*stream.name).take(MOST_NAMED);
            let there = there.collect::<Vec<_>>().join(", ");
            Err(ExportError::NoStream { wanted: wanted.to_owned(), there })
        }
    }
}
