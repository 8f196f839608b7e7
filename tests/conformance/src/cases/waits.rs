//! What waves say that they wait for.

use crate::{Context, Gates, Outcome, Session, ensure, same};
use conformance::services::Gate;
use conformance::waits::{wait_for_flag, wait_for_nobody};
use hostcall::server::{Waiting, WaitsFor};
use hostcall::{Error, Grid, LaunchFailure};
use std::collections::BTreeSet;
use std::time::Duration;

/// Waits until so many lanes say that they wait, and returns what they say.
fn told(session: &Session, lanes: u32) -> Result<Vec<Waiting>, String> {
    for _ in 0..30_000 {
        let mut waiting = session.device.waiting();
        waiting.retain(|wait| matches!(wait.waits_for, WaitsFor::Flag(_) | WaitsFor::Barrier(_)));
        match waiting.iter().map(|wait| wait.lanes).sum::<u32>() {
            told if told == lanes => return Ok(waiting),
            told if told > lanes => return Err(format!("{told} of {lanes} lanes wait: {waiting:?}")),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(format!("{lanes} lanes wait, and {:?} is told", session.device.waiting()))
}

/// Lanes that wait for a flag say for which, and since when; once it is set nothing waits.
pub fn flags(context: &Context) -> Outcome {
    let gates = Gates::default();
    let session = context.open(|device| device.service(Gate::serve(gates.clone())))?;
    let lanes = session.device.wave_size() + 5;
    let (grid, stream) = (Grid::new(3, lanes), session.stream()?);
    let flag = session.out(Grid::new(1, 1), 1)?;
    for key in 1..4u64 {
        let apart = u32::from(key == 2);
        session.launch(&stream, wait_for_flag, grid, (key, apart, &flag))?;
        let told = told(&session, 2 * lanes);
        let sentence = session.device.waiting().iter().map(ToString::to_string).collect::<Vec<_>>();
        gates.open(key);
        stream.synchronize().map_err(|error| error.to_string())?;
        let told = told?;
        let mut peers = BTreeSet::new();
        for wait in &told {
            let WaitsFor::Flag(polled) = wait.waits_for else { return Err(format!("{wait:?}")) };
            same!((&*wait.service, &*wait.kernel, polled.sequence), ("signal", "wait_for_flag", key));
            let place = wait.place.ok_or("the wave says where it is")?;
            ensure!(place.workgroup[0] < 2 && place.wave < 2 && polled.address != 0);
            peers.extend(polled.peer);
        }
        if apart != 0 {
            same!(peers, (0..2 * lanes).collect());
        } else {
            same!((peers, told.len()), (BTreeSet::from([7]), 4));
        }
        let of_flag = format!("has waited for the flag `signal`, number {key} of rank ");
        ensure!(sentence.iter().any(|sentence| sentence.contains(&of_flag)));
        same!(session.device.waiting(), Vec::new());
    }
    Ok(())
}

/// Waves that are cancelled while they wait leave no trace, and room for those that come after them.
pub fn cancelled(context: &Context) -> Outcome {
    // Rounds in which as many entries are taken as there are, and more.
    let session = context.open_with_slots(64, |device| device)?;
    let (grid, stream) = (Grid::new(4, session.device.wave_size()), session.stream()?);
    let flag = session.out(Grid::new(1, 1), 1)?;
    let lanes = 4 * session.device.wave_size();
    for _ in 0..if context.is_software() { 10 } else { 3 } {
        session.launch(&stream, wait_for_nobody, grid, (&flag,))?;
        let told = told(&session, lanes);
        session.device.cancel_all();
        match stream.synchronize() {
            Err(Error::Launch { failure: LaunchFailure::Cancelled, .. }) => {}
            other => return Err(format!("the launch ended with {other:?}")),
        }
        for wait in told? {
            let WaitsFor::Barrier(polled) = wait.waits_for else { return Err(format!("{wait:?}")) };
            same!((&*wait.service, polled.peer, polled.sequence), ("of more than six", None, 0));
        }
        same!(session.device.waiting(), Vec::new());
    }
    Ok(())
}
