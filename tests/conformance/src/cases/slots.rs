//! Slots that belong to waves: parts of a wave side by side, waves beyond the slots, waves that end in any way.

use crate::context::{done, read};
use crate::{Context, Gates, Noted, Outcome, Session, echo, ensure, same};
use conformance::calls::call_in_turn;
use conformance::services::{AsyncGate, Gate, Keys, Meter};
use conformance::slots::*;
use conformance::streams::{stream_open, stream_pass};
use hostcall::device::DeviceBuilder;
use hostcall::{Error, Grid, LaunchFailure};

/// A GPU has the slots of all its waves.
fn open_sized(
    context: &Context,
    slots: u32,
    setup: impl FnOnce(DeviceBuilder) -> DeviceBuilder,
) -> Result<Session, String> {
    if context.is_software() { context.open_with_slots(slots, setup) } else { context.open(setup) }
}

fn open(context: &Context, slots: u32, noted: &Noted) -> Result<Session, String> {
    let gates = Gates::default();
    open_sized(context, slots, |device| {
        let device = device.inline_service(echo()).service(Gate::serve(gates.clone()));
        let device =
            device.inline_service(Keys::serve(gates.clone())).async_service(AsyncGate::serve_async(gates));
        device.inline_service(Meter::serve(noted.clone()))
    })
}

/// A slow call of one lane holds back no other lane of its wave: neither calls nor posts.
pub fn beside_a_slow_call(context: &Context) -> Outcome {
    let noted = Noted::default();
    let session = open(context, 1024, &noted)?;
    for lanes in [2, 40, 64] {
        let grid = Grid::new(2, lanes);
        let out = session.out(grid, 1)?;
        let noted = noted.clone();
        noted.forget();
        session.run(slots_beside_a_slow_call, grid, (40u32, &out))?;
        done(&read(&out)?)?;
        same!(noted.noted()?.values().find(|posts| **posts != 40), None);
    }
    Ok(())
}

/// Two lanes of a wave wait for each other through the host, on devices where they can.
pub fn lanes_wait_for_each_other(context: &Context) -> Outcome {
    let session = open(context, 1024, &Noted::default())?;
    if !session.device.properties().independent_lanes {
        return Ok(());
    }
    for grid in [Grid::new(1, 2), Grid::new(3, 64)] {
        let out = session.out(grid, 1)?;
        session.run(slots_wait_for_each_other, grid, (8u32, &out))?;
        done(&read(&out)?)?;
    }
    Ok(())
}

/// Two parts of each wave wait in calls, as many as there are extra slots, and more. Up to the bound all are with the host at
/// once; past it parts line up for their waves' slots, and get them. On devices whose parts take turns no two wait at once.
pub fn at_the_bound(context: &Context) -> Outcome {
    if !open(context, 1024, &Noted::default())?.device.properties().independent_lanes {
        return Ok(());
    }
    let extra_slots: u32 = if context.is_software() { 512 } else { 1024 };
    for waves in [extra_slots, extra_slots + 100] {
        let gates = Gates::default();
        let session = open_sized(context, 1024, |device| {
            let device = device.service(Gate::serve(gates.clone()));
            device.async_service(AsyncGate::serve_async(gates.clone()))
        })?;
        let (stream, grid) = (session.stream()?, Grid::new(waves, 2));
        let out = session.out(grid, 1)?;
        session.launch(&stream, slots_all_wait, grid, (7u64, &out))?;
        gates.wait_for_arrivals((waves + extra_slots) as usize)?;
        gates.open(7);
        stream.synchronize().map_err(|error| error.to_string())?;
        done(&read(&out)?)?;
    }
    let session = open(context, 1024, &Noted::default())?;
    // Fewer, so that no look at the slots can miss one that is free: parts that line up must not wait for each other.
    let grid = Grid::new(extra_slots / 2, 2);
    let out = session.out(grid, 1)?;
    session.run(slots_wait_for_each_other, grid, (4u32, &out))?;
    done(&read(&out)?)
}

/// A launch of more waves than there are slots waits for a kernel on another stream, which is launched later.
pub fn helper_beside_many_waves(context: &Context) -> Outcome {
    let session = open(context, 512, &Noted::default())?;
    let (first, second) = (session.stream()?, session.stream()?);
    let grid = Grid::new(2000, 1);
    let out = session.out(grid, 1)?;
    session.launch(&first, stream_pass, grid, (5u64, 0u32, &out))?;
    // The first launch has all that it can get.
    std::thread::sleep(std::time::Duration::from_millis(20));
    session.launch(&second, stream_open, Grid::new(1, 40), (5u64,))?;
    second.synchronize().map_err(|error| error.to_string())?;
    first.synchronize().map_err(|error| error.to_string())?;
    same!(read(&out)?, vec![5; 2000]);
    Ok(())
}

/// Many more waves than slots, which call and post, or do neither, and end one lane after the other.
pub fn more_waves_than_slots(context: &Context) -> Outcome {
    let noted = Noted::default();
    let session = open(context, 128, &noted)?;
    let mut keys = 0;
    for grid in [Grid::new(1500, 1), Grid::new(300, 33), Grid::new(40, 256)] {
        let out = session.out(grid, 1)?;
        session.run(slots_end_one_by_one, grid, (keys, &out))?;
        // All posts were taken when the launch has ended.
        let (rounds, noted) = (read(&out)?, noted.noted()?);
        for (id, rounds) in (keys..).zip(&rounds) {
            same!((id, noted.get(&id).copied().unwrap_or(0)), (id, *rounds));
        }
        keys += rounds.len() as u64;
    }
    same!(session.device.server().statistics().garbage_posts, 0);
    Ok(())
}

fn still_works(session: &Session) -> Outcome {
    for grid in [Grid::new(60, 32), Grid::new(3, 100)] {
        let out = session.out(grid, 1)?;
        session.run(call_in_turn, grid, (3u32, &out))?;
        done(&read(&out)?)?;
    }
    Ok(())
}

/// Launches whose waves end by panics have left their slots as others need them.
pub fn panics_in_the_middle(context: &Context) -> Outcome {
    let session = open(context, 128, &Noted::default())?;
    for seed in 0..6u64 {
        let ended = session.try_run(slots_panic_in_the_middle, Grid::new(20, 70), (seed,))?;
        ensure!(matches!(
            &ended,
            Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(_), .. }, .. })
        ));
        still_works(&session)?;
    }
    Ok(())
}

/// Launches that lanes end have left their slots as others need them.
pub fn exits_in_the_middle(context: &Context) -> Outcome {
    let session = open(context, 128, &Noted::default())?;
    for seed in 0..6u64 {
        let code = session.exit_code(slots_exit_in_the_middle, Grid::new(20, 70), (seed,))?;
        same!(code, Some(7));
        still_works(&session)?;
    }
    Ok(())
}
