use crate::context::read;
use crate::handlers::{Faults, PlusOne};
use crate::{Context, Gates, Outcome, echo, ensure, same};
use conformance::services::{AsyncGate, Current, Faulty, Gate, Nobody, Trusting, old};
use conformance::statuses::*;
use hostcall::server::Handler;
use hostcall::{Device, Grid};
use hostcall_abi::CallError;

pub fn failures(context: &Context) -> Outcome {
    for in_place in [true, false] {
        let session = context.open(|device| {
            let (faulty, current) = (Faulty::serve(Faults), Current::serve(PlusOne));
            let device = device.inline_service(echo());
            if in_place {
                device.inline_service(faulty).inline_service(current)
            } else {
                device.service(faulty).service(current)
            }
        })?;
        session.all_done(status_failures, Grid::new(2, 45))?;
    }
    Ok(())
}

pub fn timeouts(context: &Context) -> Outcome {
    let gates = Gates::default();
    let session = context.open(|device| {
        let device = device.inline_service(echo()).service(Gate::serve(gates.clone()));
        device.async_service(AsyncGate::serve_async(gates.clone()))
    })?;
    let outcome = session.all_done(status_timeout, Grid::new(2, 20));
    gates.open_all();
    outcome
}

pub fn unsafe_methods(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(Trusting::serve(PlusOne)))?;
    session.all_done(status_unsafe, Grid::new(2, 45))
}

pub fn default_service(context: &Context) -> Outcome {
    let session = context.open(|device| {
        device.server(|server| server.default_service(Handler::inline(Nobody::serve(PlusOne))))
    })?;
    session.all_done(status_default, Grid::new(2, 45))
}

pub fn registered_while_running(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let grid = Grid::new(4, 40);
    let out = session.out(grid, 1)?;
    let stream = session.stream()?;
    session.launch(&stream, status_comes_and_goes, grid, (&out,))?;
    let device = &session.device;
    let nobody = device.register_inline(Nobody::serve(PlusOne)).map_err(|error| error.to_string())?;
    ensure!(device.register_inline(Nobody::serve(PlusOne)).is_err());
    // Every lane has been answered once before the service goes again.
    let before = device.statistics().packets;
    while device.statistics().packets < before + 10_000 {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    nobody.remove();
    stream.synchronize().map_err(|error| error.to_string())?;
    ensure!(read(&out)?.iter().all(|answers| *answers > 0));
    Ok(())
}

/// A removed service answers nobody any more.
pub fn removed(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for _ in 0..20 {
        let nobody =
            session.device.register_inline(Nobody::serve(PlusOne)).map_err(|error| error.to_string())?;
        same!(session.values(status_is_there, Grid::new(1, 1))?, [1]);
        nobody.remove();
        same!(session.values(status_is_there, Grid::new(1, 1))?, [0]);
    }
    Ok(())
}

pub fn duplicates_are_refused(context: &Context) -> Outcome {
    let opened = Device::builder(&context.device)
        .service(Current::serve(PlusOne))
        .service(old::Current::serve(Old))
        .open();
    let error = opened.err().ok_or("two services of one number were accepted")?.to_string();
    ensure!(error.contains("620") && error.contains("Current"));
    let wrong = context.open(|device| device.service(Current::serve(PlusOne)).service(echo()))?;
    same!(wrong.device.register(echo()).is_err(), true);
    Ok(())
}

struct Old;

impl old::CurrentHandler for Old {
    fn get(&self, key: u32) -> Result<u64, CallError> {
        Ok(key.into())
    }
}
