use crate::context::{done, read};
use crate::{Context, Gates, Noted, Outcome, Session, echo, same};
use conformance::services::{AsyncGate, Gate, Keys, Launcher, LauncherHandler, Meter};
use conformance::streams::*;
use hostcall::{Error, Event, Grid};
use hostcall_abi::CallError;
use parking_lot::Mutex;
use std::sync::Arc;

fn open(context: &Context) -> Result<Session, String> {
    let gates = Gates::default();
    context.open(|device| {
        let device = device.inline_service(echo()).service(Gate::serve(gates.clone()));
        let device = device.inline_service(Keys::serve(gates.clone()));
        device.async_service(AsyncGate::serve_async(gates))
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Every lane waits for what another launch does, with threads and with futures.
pub fn waiting_handlers_delay_nobody(context: &Context) -> Outcome {
    for with_futures in [0u32, 1] {
        let session = open(context)?;
        let (first, second) = (session.stream()?, session.stream()?);
        let grid = Grid::new(4, 60);
        let out = session.out(grid, 1)?;
        session.launch(&first, stream_pass, grid, (5u64, with_futures, &out))?;
        session.launch(&second, stream_open, Grid::new(2, 40), (5u64,))?;
        second.synchronize().map_err(text)?;
        first.synchronize().map_err(text)?;
        same!(read(&out)?, vec![5; 240]);
    }
    Ok(())
}

pub fn waiting_in_one_wave(context: &Context) -> Outcome {
    let session = open(context)?;
    same!(session.values(stream_in_wave, Grid::new(4, 50))?, vec![77; 200]);
    Ok(())
}

/// A kernel waits for one that comes later in another stream.
pub fn side_by_side(context: &Context) -> Outcome {
    let session = open(context)?;
    let streams = (0..6).map(|_| session.stream()).collect::<Result<Vec<_>, _>>()?;
    let grid = Grid::new(1, 8);
    let out = session.out(grid, 1)?;
    for (key, stream) in (0u64..).zip(&streams) {
        session.launch(stream, stream_pass, grid, (key + 1, 0u32, &out))?;
        session.launch(stream, stream_open, grid, (key,))?;
    }
    session.run(stream_open, grid, (6u64,))?;
    for stream in &streams {
        stream.synchronize().map_err(text)?;
    }
    Ok(())
}

pub fn in_order(context: &Context) -> Outcome {
    let session = open(context)?;
    let stream = session.stream()?;
    let grid = Grid::new(3, 50);
    let out = session.out(grid, 1)?;
    for step in 0..20u64 {
        session.launch(&stream, stream_step, grid, (step, &out))?;
    }
    stream.synchronize().map_err(text)?;
    same!(read(&out)?, vec![20; 150]);
    Ok(())
}

pub fn events(context: &Context) -> Outcome {
    let session = open(context)?;
    let streams = [session.stream()?, session.stream()?, session.stream()?];
    let grid = Grid::new(2, 40);
    let out = session.out(grid, 1)?;
    let mut last: Option<Event> = None;
    for step in 0..12u64 {
        let stream = &streams[step as usize % 3];
        if let Some(event) = &last {
            stream.wait_for(event).map_err(text)?;
        }
        session.launch(stream, stream_step, grid, (step, &out))?;
        last = Some(stream.record().map_err(text)?);
    }
    let last = last.ok_or("no step ran")?;
    last.wait().map_err(text)?;
    same!((last.is_done(), read(&out)?), (true, vec![12; 80]));
    Ok(())
}

/// Launches on a stream of its own while the caller waits.
#[derive(Clone, Default)]
struct Launches(Arc<Mutex<Option<Session>>>);

impl LauncherHandler for Launches {
    fn launch(&self, value: u64) -> Result<u64, CallError> {
        let session = self.0.lock().clone().ok_or(CallError::Failed(1))?;
        session.run(stream_count, Grid::new(2, 3), (value,)).map_err(|_| CallError::Failed(2))?;
        Ok(value + 1)
    }
}

pub fn handler_launches(context: &Context) -> Outcome {
    let noted = Noted::default();
    let session = context.open(|device| device.inline_service(Meter::serve(noted.clone())))?;
    let launches = Launches(Arc::new(Mutex::new(Some(session.clone()))));
    session.device.register(Launcher::serve(launches.clone())).map_err(text)?;
    let outcome = session.all_done(stream_launch, Grid::new(1, 12));
    // Handler and device would keep each other alive.
    *launches.0.lock() = None;
    outcome?;
    same!(noted.counters(), (0..12).map(|key| (key, 6)).collect());
    Ok(())
}

/// Allocates, copies and launches while the caller waits.
#[derive(Clone, Default)]
struct Copies(Launches);

impl LauncherHandler for Copies {
    fn launch(&self, value: u64) -> Result<u64, CallError> {
        let session = self.0.0.lock().clone().ok_or(CallError::Failed(1))?;
        let copied = || -> Result<Vec<u64>, Error> {
            let stream = session.device.stream()?;
            let (values, copy) =
                (session.device.upload(&[value; 3000])?, session.device.alloc_zeroed::<u64>(3000)?);
            stream.copy(&copy, &values)?;
            stream.fill(&values, 1)?;
            values.write(&[5; 3000])?;
            copy.read()
        };
        let is_copied = copied().is_ok_and(|copied| copied == [value; 3000]);
        session.run(stream_count, Grid::new(1, 1), (value,)).map_err(|_| CallError::Failed(2))?;
        if is_copied { Ok(value + 1) } else { Err(CallError::Failed(3)) }
    }
}

/// Handlers use the device in every way while launches stand behind the one that waits for them, on its stream and on one that
/// waits for it.
pub fn handlers_copy(context: &Context) -> Outcome {
    let noted = Noted::default();
    let session =
        context.open(|device| device.inline_service(echo()).inline_service(Meter::serve(noted.clone())))?;
    let copies = Copies::default();
    *copies.0.0.lock() = Some(session.clone());
    session.device.register(Launcher::serve(copies.clone())).map_err(text)?;
    let grid = Grid::new(2, 6);
    let (out, steps, streams) =
        (session.out(grid, 1)?, session.out(grid, 1)?, [session.stream()?, session.stream()?]);
    let launched = || {
        session.launch(&streams[0], stream_launch, grid, (&out,))?;
        session.launch(&streams[0], stream_step, grid, (0u64, &steps))?;
        streams[1].wait_for(&streams[0].record().map_err(text)?).map_err(text)?;
        session.launch(&streams[1], stream_step, grid, (1u64, &steps))?;
        streams[1].synchronize().map_err(text)
    };
    let outcome = launched();
    // Handler and device would keep each other alive.
    *copies.0.0.lock() = None;
    outcome?;
    done(&read(&out)?)?;
    same!((read(&steps)?, noted.counters()), (vec![2; 12], (0..12).map(|key| (key, 1)).collect()));
    Ok(())
}

/// As many workgroups as the device has room for wait with memory of the heap, of which there is more than any device has
/// prepared. Beside them the host allocates memory, writes and reads.
pub fn beside_a_full_device(context: &Context) -> Outcome {
    const KEY: u64 = 7;
    let gates = Gates::default();
    let session = context.open(|device| device.async_service(AsyncGate::serve_async(gates.clone())))?;
    // So many lanes take all registers of an NVIDIA GPU: with fewer, it is full of other things first.
    let lanes = 2 * session.device.properties().wave_size;
    let workgroups = session.resident_workgroups(stream_fill, Grid::new(1, lanes))?;
    let bytes = ((160u64 << 20) / u64::from(workgroups)).next_multiple_of(8);
    let (stream, grid) = (session.stream()?, Grid::new(workgroups, lanes));
    let out = session.out(grid, 1)?;
    session.launch(&stream, stream_fill, grid, (bytes, KEY, &out))?;
    gates.wait_for_arrivals(workgroups as usize)?;
    for count in [1usize, 100_000, 3_000_000] {
        let buffer = session.device.alloc_zeroed::<u32>(count).map_err(text)?;
        same!((count, buffer.read().map_err(text)?), (count, vec![0; count]));
        buffer.write(&vec![5; count]).map_err(text)?;
        same!((count, buffer.read().map_err(text)?), (count, vec![5; count]));
    }
    gates.open(KEY);
    stream.synchronize().map_err(text)?;
    done(&read(&out)?)
}
