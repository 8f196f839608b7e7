//! What client and server say to each other for each opcode: every receive here is a send of LLVM's client, and
//! every send a receive.

use super::call;
use super::emissary;
use super::functions::HostFunction;
use super::handlers::OpcodeHandler;
use super::opcode::{Conversation, PrintTo};
use super::options::{End, FaultKind};
use super::port::{MAX_LANES, Port};
use super::print;
use super::server::Shared;
use super::stream::{Amount, CFile, FAILED, lock};
use crate::engine::Threads;
use crate::services::Stream;
use hostcall_abi::status::Status;
use hostcall_locks::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

/// One word of each lane.
pub(super) type LaneWords = [u64; MAX_LANES];

/// Serves a port from its first packet to its last.
pub(super) async fn converse(
    mut port: Port,
    about: Conversation,
    handler: Option<OpcodeHandler>,
) -> Result<(), FaultKind> {
    match about {
        Conversation::Handler => {
            let handler = handler.expect("the executor found it");
            call::answer(&mut port, handler).await?;
        }
        Conversation::Emissary { transfers } => emissary::serve(&mut port, transfers).await?,
        Conversation::Exit => exit(&mut port).await?,
        Conversation::Abort => abort(&mut port).await?,
        Conversation::Write => write_text(&mut port, To::Standard(Stream::Stdout), false).await?,
        Conversation::WriteLine => write_text(&mut port, To::Standard(Stream::Stdout), true).await?,
        Conversation::WriteError => write_text(&mut port, To::Standard(Stream::Stderr), false).await?,
        Conversation::WriteStream => {
            let streams = receive_streams(&mut port).await;
            write_text(&mut port, To::Streams(Box::new(streams)), false).await?;
        }
        Conversation::ReadStream => read(&mut port, false).await?,
        Conversation::ReadLine => read(&mut port, true).await?,
        Conversation::Open => open(&mut port).await?,
        Conversation::Close => on_stream(&mut port, Target::close).await?,
        Conversation::EndOfFile => on_stream(&mut port, Target::end_of_file).await?,
        Conversation::Error => on_stream(&mut port, Target::error).await?,
        Conversation::ClearError => on_stream(&mut port, Target::clear_error).await?,
        Conversation::Tell => on_stream(&mut port, Target::tell).await?,
        Conversation::Flush => on_stream(&mut port, Target::flush).await?,
        Conversation::Seek => seek(&mut port).await?,
        Conversation::Unget => unget(&mut port).await?,
        Conversation::HostCall => host_call(&mut port).await?,
        Conversation::Print { to, packed } => {
            let to = match to {
                PrintTo::Stdout => To::Standard(Stream::Stdout),
                PrintTo::Stderr => To::Standard(Stream::Stderr),
                PrintTo::Stream => To::Streams(Box::new(receive_streams(&mut port).await)),
            };
            print::print(&mut port, to, packed).await?;
        }
        Conversation::Remove => remove(&mut port).await?,
        Conversation::Rename => rename(&mut port).await?,
        Conversation::System => system(&mut port).await?,
        Conversation::TestInterface => interface(&mut port).await,
        Conversation::TestStream => {
            port.receive_bytes().await?;
            port.send_bytes().await;
        }
    }
    port.close();
    Ok(())
}

/// Runs `run` for each lane with what `take` gives, and passes the results to `store`. `run` may not wait at
/// first; the first lane where it would, and those after it, are run once more where it may: on the threads that `threads`
/// says, so that nobody waits for the input or an output on those of files.
async fn for_each_lane<A, R>(
    port: &mut Port,
    mut take: impl FnMut(&mut Port, u32) -> A,
    threads: impl Fn(&A) -> Threads,
    mut run: impl Fn(&Arc<Shared>, &mut A, bool) -> Option<R> + Send + 'static,
    mut store: impl FnMut(&mut Port, u32, R),
) -> Result<(), FaultKind>
where
    A: Send + 'static,
    R: Send + 'static,
{
    let shared = port.shared().clone();
    let mut late = Vec::new();
    for lane in port.lanes() {
        let mut argument = take(port, lane);
        let result = if late.is_empty() { run(&shared, &mut argument, false) } else { None };
        match result {
            Some(result) => store(port, lane, result),
            None => late.push((lane, argument)),
        }
    }
    for on in [Threads::Builtins, Threads::Output, Threads::Input] {
        let these: Vec<_> = late.extract_if(.., |(_, argument)| threads(argument) == on).collect();
        if these.is_empty() {
            continue;
        }
        let shared = shared.clone();
        let work = move || {
            let run_one = |(lane, mut argument)| Some((lane, run(&shared, &mut argument, true)?));
            (these.into_iter().filter_map(run_one).collect::<Vec<_>>(), run)
        };
        let results;
        (results, run) = port.work(on, work).await?;
        for (lane, result) in results {
            store(port, lane, result);
        }
    }
    Ok(())
}

/// As [`for_each_lane`], for numbers that are the answers.
async fn answer_each_lane<A: Send + 'static>(
    port: &mut Port,
    take: impl FnMut(&mut Port, u32) -> A,
    threads: impl Fn(&A) -> Threads,
    run: impl Fn(&Arc<Shared>, &mut A, bool) -> Option<i64> + Send + 'static,
) -> Result<(), FaultKind> {
    for_each_lane(port, take, threads, run, |port, lane, result| port.words(lane)[0] = result as u64).await?;
    port.send(1).await;
    Ok(())
}

/// What a stream's number stands for.
pub(super) enum Target {
    Input,
    Output(Stream),
    File(Arc<Mutex<CFile>>),
    /// No stream has the number.
    Nothing(u64),
}

impl Target {
    /// The stream that a client calls by this number: its two lowest bits are set for the standard ones.
    pub fn of(shared: &Shared, stream: u64) -> Self {
        match stream & 3 {
            1 => Self::Input,
            2 => Self::Output(Stream::Stdout),
            3 => Self::Output(Stream::Stderr),
            _ => shared.files.get(stream).map_or(Self::Nothing(stream), Self::File),
        }
    }

    /// The threads on which something is done with the stream that a client calls by this number.
    fn threads(stream: u64) -> Threads {
        match stream & 3 {
            1 => Threads::Input,
            2 | 3 => Threads::Output,
            // `fflush(NULL)`.
            _ if stream == 0 => Threads::Output,
            _ => Threads::Builtins,
        }
    }

    /// Says whether bytes can be written to it.
    pub fn takes_bytes(&self) -> bool {
        matches!(self, Self::Output(_) | Self::File(_))
    }

    /// Writes bytes. How many were written; `None` when that would wait.
    pub fn write(&self, shared: &Shared, bytes: &[u8], may_wait: bool) -> Option<usize> {
        match self {
            Self::Output(stream) => shared.standard.write(*stream, bytes, may_wait),
            Self::File(file) => {
                let mut file = lock(file, may_wait)?;
                (may_wait || file.takes(bytes.len())).then(|| file.write(bytes))
            }
            Self::Input | Self::Nothing(_) => Some(0),
        }
    }

    fn read(&self, shared: &Shared, amount: Amount, may_wait: bool) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            _ if amount.bytes == 0 => {}
            Self::Input => {
                may_wait.then(|| shared.standard.read(amount, &mut bytes))?;
            }
            Self::File(file) => {
                let mut file = lock(file, may_wait)?;
                (may_wait || file.has(amount)).then(|| file.read(amount, &mut bytes))?;
            }
            Self::Output(_) | Self::Nothing(_) => {}
        }
        Some(bytes)
    }

    fn close(&self, shared: &Shared, stream: u64, may_wait: bool) -> Option<i64> {
        match self {
            Self::File(_) => may_wait.then(|| shared.files.close(stream)),
            Self::Input | Self::Output(_) => Some(0),
            Self::Nothing(_) => Some(FAILED),
        }
    }

    fn end_of_file(&self, shared: &Shared, _: u64, may_wait: bool) -> Option<i64> {
        match self {
            Self::Input => Some(lock(&shared.standard.input, may_wait)?.end.into()),
            Self::File(file) => Some(lock(file, may_wait)?.reading.end.into()),
            Self::Output(_) | Self::Nothing(_) => Some(0),
        }
    }

    fn error(&self, shared: &Shared, _: u64, may_wait: bool) -> Option<i64> {
        match self {
            Self::Input => Some(lock(&shared.standard.input, may_wait)?.error.into()),
            Self::File(file) => Some(lock(file, may_wait)?.reading.error.into()),
            Self::Output(_) => Some(0),
            Self::Nothing(_) => Some(1),
        }
    }

    fn clear_error(&self, shared: &Shared, stream: u64, may_wait: bool) -> Option<i64> {
        let clear = |reading: &mut super::stream::Reading| (reading.end, reading.error) = (false, false);
        match self {
            Self::Input => clear(&mut *lock(&shared.standard.input, may_wait)?),
            Self::File(file) => clear(&mut lock(file, may_wait)?.reading),
            Self::Output(_) | Self::Nothing(_) => {}
        }
        // C's function has no result; what the client sent goes back.
        Some(stream as i64)
    }

    fn tell(&self, _: &Shared, _: u64, may_wait: bool) -> Option<i64> {
        let Self::File(file) = self else { return Some(FAILED) };
        let mut file = lock(file, may_wait)?;
        (may_wait || file.is_flushed()).then(|| file.tell())
    }

    fn flush(&self, shared: &Shared, _: u64, may_wait: bool) -> Option<i64> {
        match self {
            Self::File(file) => {
                let mut file = lock(file, may_wait)?;
                (may_wait || file.is_flushed()).then(|| file.flush())
            }
            Self::Output(_) => may_wait.then(|| shared.standard.flush()),
            // `fflush(NULL)`.
            Self::Nothing(0) => may_wait.then(|| shared.standard.flush().min(shared.files.flush_all())),
            Self::Input => Some(0),
            Self::Nothing(_) => Some(FAILED),
        }
    }

    fn seek(&self, offset: i64, whence: i64, may_wait: bool) -> Option<i64> {
        let Self::File(file) = self else { return Some(FAILED) };
        let mut file = lock(file, may_wait)?;
        (may_wait || file.is_flushed()).then(|| file.seek(offset, whence))
    }

    fn unget(&self, shared: &Shared, character: i64, may_wait: bool) -> Option<i64> {
        match self {
            Self::Input => Some(lock(&shared.standard.input, may_wait)?.unget(character)),
            Self::File(file) => Some(lock(file, may_wait)?.unget(character)),
            Self::Output(_) | Self::Nothing(_) => Some(FAILED),
        }
    }
}

/// Where text goes.
pub(super) enum To {
    Standard(Stream),
    /// To each lane's own stream.
    Streams(Box<LaneWords>),
}

async fn receive_streams(port: &mut Port) -> LaneWords {
    port.receive(1).await;
    let mut streams = [0; MAX_LANES];
    for lane in port.lanes() {
        streams[lane as usize] = port.words(lane)[0];
    }
    streams
}

/// Appends to a standard stream what `line` makes for each lane; nobody else's text comes between, unless there is
/// no room for it all. Where the stream's writer has failed, `failed` is the lanes' answer.
pub(super) async fn append_lines(
    port: &mut Port,
    stream: Stream,
    failed: u64,
    mut line: impl FnMut(&mut Port, u32, &mut Vec<u8>),
) -> Result<(), FaultKind> {
    let shared = port.shared().clone();
    let mut lanes = port.lanes().peekable();
    loop {
        let mut outputs = shared.standard.outputs();
        while let Some(lane) = lanes.next_if(|_| !outputs.is_full()) {
            outputs.text(stream, |out| line(port, lane, out));
            if outputs.has_failed(stream) {
                // As C's functions say that nothing was written.
                port.words(lane)[0] = failed;
            }
        }
        drop(outputs);
        if lanes.peek().is_none() {
            return Ok(());
        }
        let shared = shared.clone();
        port.work(Threads::Output, move || shared.standard.wait_for_room()).await?;
    }
}

/// Writes a lane's bytes to a stream. How many were written.
pub(super) async fn write(port: &mut Port, lane: u32, stream: u64) -> Result<u64, FaultKind> {
    let target = Target::of(port.shared(), stream);
    let shared = port.shared().clone();
    if let Some(written) = target.write(&shared, port.bytes(lane), false) {
        return Ok(written as u64);
    }
    let bytes = std::mem::take(port.bytes(lane));
    let write = move || target.write(&shared, &bytes, true).unwrap_or(0);
    Ok(port.work(Target::threads(stream), write).await? as u64)
}

async fn write_text(port: &mut Port, to: To, newline: bool) -> Result<(), FaultKind> {
    port.receive_bytes().await?;
    match to {
        To::Standard(stream) => {
            append_lines(port, stream, 0, |port, lane, out| {
                let bytes = port.bytes(lane);
                out.extend_from_slice(bytes);
                out.extend_from_slice(if newline { b"\n" } else { b"" });
                port.words(lane)[0] = (port.bytes(lane).len() + usize::from(newline)) as u64;
            })
            .await?;
        }
        To::Streams(streams) => {
            for lane in port.lanes() {
                port.words(lane)[0] = write(port, lane, streams[lane as usize]).await?;
            }
        }
    }
    port.send(1).await;
    Ok(())
}

async fn read(port: &mut Port, line: bool) -> Result<(), FaultKind> {
    port.receive(2).await;
    let take = |port: &mut Port, lane| {
        let [size, stream, ..] = *port.words(lane);
        let size = port.room_for(size);
        // A line has a zero byte behind it.
        (stream, Amount { bytes: size - usize::from(line && size > 0), line }, size)
    };
    let read = |shared: &Arc<Shared>, (stream, amount, size): &mut (u64, Amount, usize), may_wait| {
        let mut bytes = Target::of(shared, *stream).read(shared, *amount, may_wait)?;
        if amount.line && (!bytes.is_empty() || *size == 1) {
            bytes.push(0);
        }
        Some(bytes)
    };
    let threads = |(stream, ..): &(u64, Amount, usize)| Target::threads(*stream);
    for_each_lane(port, take, threads, read, |port, lane, bytes| *port.bytes(lane) = bytes).await?;
    port.send_bytes().await;
    if !line {
        for lane in port.lanes() {
            port.words(lane)[0] = port.bytes(lane).len() as u64;
        }
        port.send(1).await;
    }
    Ok(())
}

async fn open(port: &mut Port) -> Result<(), FaultKind> {
    port.receive_bytes().await?;
    port.receive(8).await;
    let take = |port: &mut Port, lane| {
        let mode = port.words(lane).map(u64::to_le_bytes);
        (std::mem::take(port.bytes(lane)), mode)
    };
    // A file that is a pipe opens when its other end does.
    let open = |shared: &Arc<Shared>, (path, mode): &mut (Vec<u8>, [[u8; 8]; 8]), may_wait: bool| {
        may_wait.then(|| shared.files.open(path, mode.as_flattened()) as i64)
    };
    answer_each_lane(port, take, |_| Threads::Builtins, open).await
}

/// Functions of a stream alone.
async fn on_stream(
    port: &mut Port,
    function: fn(&Target, &Shared, u64, bool) -> Option<i64>,
) -> Result<(), FaultKind> {
    port.receive(1).await;
    let call = move |shared: &Arc<Shared>, stream: &mut u64, may_wait| {
        function(&Target::of(shared, *stream), shared, *stream, may_wait)
    };
    answer_each_lane(port, |port, lane| port.words(lane)[0], |stream| Target::threads(*stream), call).await
}

async fn seek(port: &mut Port) -> Result<(), FaultKind> {
    port.receive(3).await;
    let seek = |shared: &Arc<Shared>, words: &mut [u64; 8], may_wait| {
        let [stream, offset, whence, ..] = *words;
        Target::of(shared, stream).seek(offset as i64, i64::from(whence as i32), may_wait)
    };
    answer_each_lane(port, |port, lane| *port.words(lane), |words| Target::threads(words[0]), seek).await
}

async fn unget(port: &mut Port) -> Result<(), FaultKind> {
    port.receive(2).await;
    let unget = |shared: &Arc<Shared>, words: &mut [u64; 8], may_wait| {
        let [character, stream, ..] = *words;
        Target::of(shared, stream).unget(shared, i64::from(character as i32), may_wait)
    };
    answer_each_lane(port, |port, lane| *port.words(lane), |words| Target::threads(words[1]), unget).await
}

async fn host_call(port: &mut Port) -> Result<(), FaultKind> {
    port.receive_bytes().await?;
    port.receive(1).await;
    let shared = port.shared().clone();
    let mut calls = Vec::new();
    for lane in port.lanes() {
        let address = port.words(lane)[0];
        let function = shared.functions.get(address).ok_or(FaultKind::NoSuchFunction(address))?;
        calls.push((lane, function, std::mem::take(port.bytes(lane))));
    }
    let call = move || {
        let call = |(lane, function, mut bytes): (u32, HostFunction, Vec<u8>)| (lane, function(&mut bytes));
        calls.into_iter().map(call).collect::<Vec<_>>()
    };
    for (lane, result) in port.work(Threads::Users, call).await? {
        port.words(lane)[0] = result;
    }
    port.send(1).await;
    Ok(())
}

async fn remove(port: &mut Port) -> Result<(), FaultKind> {
    port.receive_bytes().await?;
    let remove = |shared: &Arc<Shared>, path: &mut Vec<u8>, may_wait: bool| {
        may_wait.then(|| shared.files.remove(path))
    };
    let take = |port: &mut Port, lane| std::mem::take(port.bytes(lane));
    answer_each_lane(port, take, |_| Threads::Builtins, remove).await
}

async fn rename(port: &mut Port) -> Result<(), FaultKind> {
    port.receive_bytes().await?;
    let mut old: Vec<_> = port.lanes().map(|lane| std::mem::take(port.bytes(lane))).collect();
    old.reverse();
    port.receive_bytes().await?;
    let take = |port: &mut Port, lane| {
        (old.pop().expect("each lane has sent one"), std::mem::take(port.bytes(lane)))
    };
    let rename = |shared: &Arc<Shared>, (from, to): &mut (Vec<u8>, Vec<u8>), may_wait: bool| {
        may_wait.then(|| shared.files.rename(from, to))
    };
    answer_each_lane(port, take, |_| Threads::Builtins, rename).await
}

async fn system(port: &mut Port) -> Result<(), FaultKind> {
    port.receive_bytes().await?;
    let shared = port.shared().clone();
    if shared.options.system {
        // What the program printed before comes before what the command prints.
        port.work(Threads::Output, move || shared.standard.flush()).await?;
    }
    let system = |shared: &Arc<Shared>, command: &mut Vec<u8>, may_wait: bool| {
        if !shared.options.system {
            return Some(FAILED);
        }
        may_wait.then(|| run(command))
    };
    let take = |port: &mut Port, lane| std::mem::take(port.bytes(lane));
    answer_each_lane(port, take, |_| Threads::Builtins, system).await
}

/// Runs a command and waits for its end. Its status as `wait` has it.
fn run(command: &[u8]) -> i64 {
    let command = command.split(|byte| *byte == 0).next().unwrap_or_default();
    let status = Command::new("/bin/sh").arg("-c").arg(OsStr::from_bytes(command)).status();
    status.map_or(FAILED, |status| status.into_raw().into())
}

/// Flushes all, since nobody may come back, and notes the end.
async fn end(port: &mut Port, end: End) -> Result<(), FaultKind> {
    let shared = port.shared().clone();
    port.work(Threads::Output, move || shared.flush()).await?;
    // Whoever is told of the end finds the call in the trace.
    port.record(Status::Ok);
    port.shared().ended(end);
    Ok(())
}

async fn exit(port: &mut Port) -> Result<(), FaultKind> {
    port.receive(0).await;
    port.send(0).await;
    port.receive(1).await;
    let first = port.lanes().next().expect("a port has lanes");
    let code = port.words(first)[0] as i32;
    end(port, End::Exited(code)).await
}

async fn abort(port: &mut Port) -> Result<(), FaultKind> {
    port.receive(0).await;
    port.send(0).await;
    port.receive(0).await;
    end(port, End::Aborted).await
}

async fn interface(port: &mut Port) {
    async fn count(port: &mut Port) {
        for lane in port.lanes() {
            let word = &mut port.words(lane)[0];
            *word = word.wrapping_add(1);
        }
        port.send(1).await;
    }
    port.receive(1).await;
    let ends_with_receive = port.lanes().next().is_some_and(|lane| port.words(lane)[0] != 0);
    port.receive(1).await;
    count(port).await;
    port.receive(1).await;
    count(port).await;
    port.receive(1).await;
    port.receive(1).await;
    count(port).await;
    count(port).await;
    if ends_with_receive {
        port.receive(1).await;
    } else {
        count(port).await;
    }
}
