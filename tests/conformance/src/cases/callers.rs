use crate::context::{done, read};
use crate::{Context, Outcome, same};
use conformance::callers::who_calls;
use conformance::services::{Who, WhoAsyncHandler, WhoHandler};
use hostcall::{CallError, Caller, Grid, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts posts that came from another lane than they say.
#[derive(Clone, Default)]
struct Witness {
    notes: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
}

impl Witness {
    fn look(&self, caller: Caller, lane: u32) {
        self.notes.fetch_add(1, Ordering::Relaxed);
        self.wrong.fetch_add(u64::from(u32::from(caller.lane) != lane), Ordering::Relaxed);
    }
}

impl WhoHandler for Witness {
    fn lane(&self, caller: &Caller, id: u64) -> Result<(u64, u32), CallError> {
        Ok((id, caller.lane.into()))
    }
    fn note(&self, caller: &Caller, lane: u32) -> Result<(), CallError> {
        self.look(*caller, lane);
        Ok(())
    }
    fn named(&self, caller: &Caller, name: &str, out: &mut Output<'_>) -> Result<u32, CallError> {
        out.push(name.as_bytes())?;
        Ok(caller.lane.into())
    }
}

impl WhoAsyncHandler for Witness {
    async fn lane(&self, caller: Caller, id: u64) -> Result<(u64, u32), CallError> {
        Ok((id, caller.lane.into()))
    }
    async fn note(&self, caller: Caller, lane: u32) -> Result<(), CallError> {
        self.look(caller, lane);
        Ok(())
    }
    async fn named(&self, caller: Caller, name: String, _: usize) -> Result<(u32, Vec<u8>), CallError> {
        Ok((caller.lane.into(), name.into_bytes()))
    }
}

/// A handler learns which lane calls or posts, wherever it runs.
pub fn told_in_any_way(context: &Context) -> Outcome {
    for way in 0..3 {
        let witness = Witness::default();
        let service = witness.clone();
        let session = context.open(|device| match way {
            0 => device.inline_service(Who::serve(service)),
            1 => device.service(Who::serve(service)),
            _ => device.async_service(Who::serve_async(service)),
        })?;
        let grid = Grid::new(3, 70);
        let out = session.out(grid, 1)?;
        session.run(who_calls, grid, (&out,))?;
        done(&read(&out)?)?;
        session.device.close();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        same!((way, count(&witness.wrong)), (way, 0));
    }
    Ok(())
}
