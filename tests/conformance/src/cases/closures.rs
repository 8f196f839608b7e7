use crate::context::{done, read};
use crate::{Context, Outcome, echo, ensure, same};
use conformance::closures::{closure_call, closure_until_finished};
use hostcall::{Grid, Hostcall};

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// One closure over two launches.
pub fn continuous(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    let remote = Hostcall::continuous(&session.device, |(a, b): (u64, u64)| a + b).map_err(text)?;
    for _ in 0..2 {
        let grid = Grid::new(2, 45);
        let out = session.out(grid, 1)?;
        session.run(closure_call, grid, (&remote, &out))?;
        done(&read(&out)?)?;
    }
    ensure!(!remote.is_finished());
    Ok(())
}

/// A closure answers one call, however many there are; another until a launch has ended.
pub fn once(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let first = Hostcall::once(&session.device, |value: u64| value).map_err(text)?;
    let second = Hostcall::once(&session.device, |value: u64| value).map_err(text)?;
    let grid = Grid::new(1, 1);
    let out = session.out(grid, 1)?;
    session.run(closure_until_finished, grid, (&first, &second, &out))?;
    same!((read(&out)?, first.is_finished(), second.is_finished()), (vec![2], true, true));
    Ok(())
}

/// A closure that panics fails the call and nothing else.
pub fn panicking(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    let remote = Hostcall::continuous(&session.device, |(_, _): (u64, u64)| -> u64 {
        std::panic::resume_unwind(Box::new("the closure gives up"))
    })
    .map_err(text)?;
    let grid = Grid::new(1, 40);
    let out = session.out(grid, 1)?;
    let ended = session.try_run(closure_call, grid, (&remote, &out))?;
    ensure!(ended.err().ok_or("no lane panicked")?.to_string().contains("Panicked"));
    let remote = Hostcall::continuous(&session.device, |(a, b): (u64, u64)| a + b).map_err(text)?;
    session.run(closure_call, grid, (&remote, &out))?;
    done(&read(&out)?)
}

/// A continuous closure that is told so takes one more call.
pub fn last_call(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let first = Hostcall::continuous(&session.device, |value: u64| value).map_err(text)?;
    let second = Hostcall::continuous(&session.device, |value: u64| value).map_err(text)?;
    first.non_continuous().map_err(text)?;
    ensure!(second.finish());
    let grid = Grid::new(1, 1);
    let out = session.out(grid, 1)?;
    session.run(closure_until_finished, grid, (&first, &second, &out))?;
    same!((read(&out)?, first.is_finished()), (vec![1], true));
    ensure!(first.non_continuous().is_err());
    Ok(())
}

/// A launch keeps the closures that it got, and calls no other ones.
pub fn stale(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    let grid = Grid::new(2, 45);
    let (out, stream) = (session.out(grid, 1)?, session.stream()?);
    let remote = Hostcall::continuous(&session.device, |(a, b): (u64, u64)| a + b).map_err(text)?;
    session.launch(&stream, closure_call, grid, (&remote, &out))?;
    drop(remote);
    let _other = Hostcall::continuous(&session.device, |(a, b): (u64, u64)| a * b).map_err(text)?;
    stream.synchronize().map_err(text)?;
    done(&read(&out)?)
}
