//! Futures in kernels: calls that go on side by side, are chosen among, and are forgotten.

use crate::context::{done, read};
use crate::{Context, Gates, Outcome, Session, echo};
use conformance::futures::*;
use conformance::pending::pending_order;
use conformance::services::Gate;
use hostcall::{Error, Grid, LaunchFailure};

fn open(context: &Context) -> Result<(Session, Gates), String> {
    let gates = Gates::default();
    let session = context.open(|device| device.service(Gate::serve(gates.clone())).inline_service(echo()))?;
    Ok((session, gates))
}

pub fn joined(context: &Context) -> Outcome {
    let (session, _gates) = open(context)?;
    session.all_done(futures_joined, Grid::new(1, 1))?;
    session.all_done(futures_joined, Grid::new(3, 70))
}

/// One lane with more calls than there are extra slots, and many lanes with more of them together.
pub fn unordered(context: &Context) -> Outcome {
    let (session, _gates) = open(context)?;
    for (grid, count) in [(Grid::new(1, 1), 64u64), (Grid::new(1, 1), 2000), (Grid::new(2, 40), 30)] {
        let out = session.out(grid, 1)?;
        session.run(futures_unordered, grid, (count, &out))?;
        done(&read(&out)?)?;
    }
    Ok(())
}

/// Slots of calls that were forgotten are given back while the kernel runs, and at its end.
pub fn chosen(context: &Context) -> Outcome {
    let (session, _gates) = open(context)?;
    for (grid, rounds) in [(Grid::new(1, 1), 1500u64), (Grid::new(2, 40), 20)] {
        let out = session.out(grid, 1)?;
        session.run(futures_chosen, grid, (rounds, &out))?;
        done(&read(&out)?)?;
    }
    // None was lost: as many can be open as before.
    session.all_done(pending_order, Grid::new(5, 64))
}

/// A lane that waits for what never comes ends with its launch.
pub fn cancelled(context: &Context) -> Outcome {
    let (session, gates) = open(context)?;
    let stream = session.stream()?;
    session.launch(&stream, futures_for_ever, Grid::new(2, 40), ())?;
    gates.wait_for_arrivals(80)?;
    session.device.cancel_all();
    let ended = stream.synchronize();
    gates.open_all();
    match ended {
        Err(Error::Launch { failure: LaunchFailure::Cancelled, .. }) => Ok(()),
        other => Err(format!("the launch ended with {other:?}")),
    }
}
