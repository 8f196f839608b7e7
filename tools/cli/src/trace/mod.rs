//! Tracing a run, and `hostcall trace`.

mod dump;
mod export;
mod info;
mod live;

use crate::arguments::TraceCommand;
use crate::output::Stdout;
use crate::wait::BY_SIGNAL;
use crate::{Outcome, complain, telling};
use dump::dump;
use export::export;
use hostcall_trace::{Event, Names, Reader, Tracer, escaped};
use info::info;
use signal_hook::consts::SIGPIPE;
use std::borrow::Cow;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the end of a run waits for its trace to be written.
const LONGEST_FINISH: Duration = Duration::from_secs(10);

/// What is said of a trace whose end is not there. A file does not tell the two apart.
const NO_END: &str =
    "the trace's end is missing: it was cut, or is still being written (`hostcall trace top` follows it)";

/// What a run records.
pub struct Tracing {
    tracer: Option<Tracer>,
    /// The file, as the user named it.
    file: Option<PathBuf>,
    has_stats: bool,
}

impl Tracing {
    /// Starts a tracer, if there is a file to write or statistics are to be printed.
    ///
    /// # Errors
    /// A sentence, when the file cannot be written.
    pub fn start(file: Option<&Path>, has_stats: bool) -> Result<Self, Box<dyn Error>> {
        let mut builder = Tracer::builder();
        if let Some(file) = file {
            // Who writes a pipe waits for its reader.
            builder =
                telling(file, format!("waits for a reader of {}", file.display()), || builder.file(file))?;
        }
        let tracer = (file.is_some() || has_stats).then(|| builder.start()).transpose();
        let tracer = tracer.map_err(|error| match file {
            Some(_) => error.to_string(),
            None => format!("cannot start to count calls: {error}"),
        })?;
        Ok(Self { tracer, file: file.map(Path::to_owned), has_stats })
    }

    /// Returns the tracer that the device is to have.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Waits until the trace is written, and prints the statistics. Returns the command's exit code.
    pub fn finish(self, code: i32) -> i32 {
        let Some(tracer) = self.tracer else { return code };
        let summary = tracer.finish(LONGEST_FINISH);
        let mut is_lost = false;
        if self.has_stats {
            let table = summary.latencies.table(&summary.names);
            if let Err(error) = io::stderr().write_all(table.as_bytes()) {
                // Where the standard error takes nothing, the exit code says it alone.
                complain(format!("cannot write the statistics of --stats to the standard error: {error}"));
                is_lost = true;
            }
        }
        if let Some(lost) = summary.lost() {
            match self.file {
                Some(file) => complain(format!("{}: {lost}", file.display())),
                None => complain(lost),
            }
            is_lost = true;
        }
        if is_lost && code == 0 { 1 } else { code }
    }
}

/// What is said of a folder.
pub fn folder(path: &Path) -> String {
    format!("{} is a folder: name the file of a trace", path.display())
}

/// What is said of a pipe that nobody has written a trace's begin to.
pub fn waits_to_begin(path: &Path) -> String {
    format!("waits for a trace to begin in {}", path.display())
}

fn cannot(what: &str, path: &Path, error: impl std::fmt::Display) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

/// Runs a subcommand of `hostcall trace`.
///
/// # Errors
/// A sentence, when it cannot be done.
pub fn run(command: TraceCommand) -> Outcome {
    match command {
        TraceCommand::Info { file } => printed(|out| info(&file, out)),
        TraceCommand::Dump { file } => printed(|out| dump(&file, out)),
        TraceCommand::Top { file, every } => crate::top::run(&file, every),
        TraceCommand::On { pid, to, points, kernels, launch, r#for } => {
            live::on(&pid, &to, points, kernels, launch, r#for)
        }
        TraceCommand::Off { pid } => live::off(&pid),
        TraceCommand::Export { file, out, stream } => export(&file, &out, stream.as_deref()),
    }
}

/// Why nothing more is printed.
enum Stop {
    /// The standard output takes no more.
    Output(io::Error),
    Sentence(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Prints to the standard output, whose reader may leave.
fn printed(print: impl FnOnce(&mut dyn Write) -> Result<(), Stop>) -> Outcome {
    let mut out = BufWriter::new(Stdout);
    match print(&mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => Ok(0),
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(BY_SIGNAL + SIGPIPE),
        Err(Stop::Output(error)) => Err(format!("cannot write to the standard output: {error}").into()),
        Err(Stop::Sentence(sentence)) => {
            // What was read before is said before.
            let _ = out.flush();
            Err(sentence.into())
        }
    }
}

fn open(path: &Path) -> Result<Reader<File>, Stop> {
    if path.is_dir() {
        return Err(Stop::Sentence(folder(path)));
    }
    // Who reads a pipe waits for its writer.
    telling(path, waits_to_begin(path), || {
        let file = File::open(path).map_err(|error| Stop::Sentence(cannot("read", path, error)))?;
        Reader::new(file).map_err(|error| Stop::Sentence(cannot("read", path, error)))
    })
}

/// Gives each event of a trace, and what has a name by then.
fn events(
    path: &Path,
    reader: &mut Reader<File>,
    mut event: impl FnMut(&Names, &Event) -> io::Result<()>,
) -> Result<Names, Stop> {
    let mut names = Names::default();
    for read in reader {
        let read = read.map_err(|error| Stop::Sentence(cannot("read on in", path, error)))?;
        names.note(&read);
        event(&names, &read)?;
    }
    Ok(names)
}

/// The name of a source's device.
fn device(names: &Names, source: u16) -> Cow<'_, str> {
    escaped(names.source(source).map_or("?", |(device, _)| device))
}
