//! Reports of what does not move.

use crate::{Context, Gates, Outcome, echo, ensure, same};
use conformance::calls::call_in_turn;
use conformance::services::{Gate, Keys};
use conformance::streams::stream_pass;
use hostcall::Grid;
use hostcall::device::{Faults, SoftwareDeviceConfig};
use hostcall::server::{Waiting, WaitsFor};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

type Stalls = Arc<Mutex<Vec<Waiting>>>;

/// Waits for the first report.
fn first(stalls: &Stalls) -> Result<Waiting, String> {
    for _ in 0..30_000 {
        if let Some(stall) = stalls.lock().first() {
            return Ok(stall.clone());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("no stall was reported".into())
}

const AFTER: Duration = Duration::from_millis(50);

/// Rounds after which handlers must have begun in one, however busy the machine is.
const ROUNDS: u64 = 100;

/// A handler that does not return is reported, with what it is about.
pub fn stuck_handler(context: &Context) -> Outcome {
    let (gates, stalls) = (Gates::default(), Stalls::default());
    let seen = stalls.clone();
    let session = context.open(|device| {
        let device = device.service(Gate::serve(gates.clone())).inline_service(Keys::serve(gates.clone()));
        device.server(move |server| server.stall_report(AFTER, move |stall| seen.lock().push(stall.clone())))
    })?;
    let grid = Grid::new(1, 3);
    let (stream, out) = (session.stream()?, session.out(grid, 1)?);
    for gate in 0..ROUNDS {
        stalls.lock().clear();
        session.launch(&stream, stream_pass, grid, (gate, 0u32, &out))?;
        let stall = first(&stalls);
        let waiting = session.device.waiting();
        gates.open(gate);
        stream.synchronize().map_err(|error| error.to_string())?;
        let stall = stall?;
        same!((stall.launch.generation(), stall.service.as_str()), (1, "Gate::pass"));
        ensure!(stall.waited >= AFTER);
        same!(waiting.first().map(|waiting| waiting.slot), Some(stall.slot));
        ensure!(stall.to_string().contains("Gate::pass"));
        if stall.waits_for == WaitsFor::Handler {
            return Ok(());
        }
        // The system has not let the handlers' threads run yet, which the report then says.
        same!(stall.waits_for, WaitsFor::Thread);
    }
    Err("no handler began".into())
}

/// A wave that dies in the middle of a call, before all of its lanes have written theirs.
pub fn dead_wave(context: &Context) -> Outcome {
    if !context.is_software() {
        return Ok(());
    }
    let stalls = Stalls::default();
    let seen = stalls.clone();
    let faults = Faults { kill_wave: 1.0, ..context.faults };
    let config = SoftwareDeviceConfig { faults, ..context.software() };
    let session = context.open(|device| {
        let device = device.software(config).inline_service(echo());
        device.server(move |server| server.stall_report(AFTER, move |stall| seen.lock().push(stall.clone())))
    })?;
    let grid = Grid::new(1, 20);
    let out = session.out(grid, 1)?;
    let ended = session.try_run(call_in_turn, grid, (3u32, &out))?;
    let sentence = ended.err().ok_or("a launch whose wave died ended well")?.to_string();
    ensure!(sentence.contains("call_in_turn"));
    Ok(())
}
