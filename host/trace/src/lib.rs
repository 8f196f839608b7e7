//! Traces of the calls that hostcall's servers answer: which kernel called what, when its call was found, when its
//! handler ran, and when it had its answer.
//!
//! - [`Tracer`] takes records from servers without delaying them, counts latencies, and writes a file if it is to.
//! - [`Reader`] reads such a file as [`Event`]s, in memory that does not grow with the file. A file that was cut at any
//!   byte is read up to there; damaged blocks are skipped and told of.
//! - `export` (with the feature of that name) turns a trace into Perfetto's format, Arrow, Parquet or CSV.
//! - [`Follower`] reads one that another process still writes.
//! - [`StreamFile`] writes pages of raw channels to such a file.
//! - [`Points`] takes what trace points of kernels say, and puts their times on the trace's time line.
//! - [`Losses`] counts what a trace lacks, as it says itself.
//! - [`Names`] has the names that events refer to by numbers, [`Latencies`] the histograms; [`escaped`] makes
//!   texts of a trace fit for a terminal.
//!
//! ```
//! use hostcall_abi::launch::LaunchId;
//! use hostcall_trace::{Call, Event, Reader, Tracer};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("calls.trace");
//! let tracer = Tracer::builder().file(&file)?.start()?;
//! // A device does this when it is opened with the tracer, and its server does the rest.
//! let source = tracer.source("cpu", "hostcall");
//! source.call("Inventory::lookup", 300, LaunchId::NONE, Call { lanes: 32, ..Call::at(source.now_ns()) });
//! let summary = tracer.finish(std::time::Duration::from_secs(5));
//! assert_eq!((summary.calls, summary.lost()), (1, None));
//!
//! let mut reader = Reader::new(std::fs::File::open(&file)?)?;
//! let calls = reader.by_ref().filter(|event| matches!(event, Ok(Event::Call(call)) if call.lanes == 32));
//! assert_eq!(calls.count(), 1);
//! assert!(reader.is_complete());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod clock;
mod descriptor;
mod escaped;
#[cfg(feature = "export")]
pub mod export;
mod follow;
mod format;
mod latencies;
mod losses;
mod names;
mod other_waves;
mod output;
mod points;
mod queue;
mod reader;
mod record;
mod stream_file;
mod tracer;
mod writer;

pub use descriptor::{Column, Descriptor, NamedStream, RecordPrinter, RecordValue, Streams};
pub use escaped::escaped;
pub use follow::Follower;
pub use hostcall_abi::trace::PointKind;
pub use latencies::{Latencies, MethodLatencies, SlowCall, TRACE_POINTS};
pub use losses::{Loss, Losses, StreamLosses};
pub use names::{Launch, MethodName, Names, PointName};
pub use output::Unwritten;
pub use points::{PointNumbers, Points, PointsPage};
pub use reader::{Header, OpenError, Reader};
pub use record::{
    Call, ClockPair, Ending, Event, Page, Point, Posts, Status, StreamTotals, Totals, UNKNOWN, Waiting,
    WaitsFor,
};
pub use stream_file::StreamFile;
pub use tracer::{Flush, Source, Summary, Tracer, TracerBuilder};
