//! The chapter "Graphs".

use hostcall::graph::{self, CaptureMode};
use hostcall::{CallError, Device, Error, Global, Grid, Lane, LaunchKernel, kernel, service};

#[service]
trait Steps {
    fn is_enough(value: u32) -> bool;
}

#[kernel]
fn increment(_: &Lane, x: &Global<u32>) {
    x.set(x.get() + 1);
}

#[kernel]
fn ask(_: &Lane, x: &Global<u32>, is_enough: &Global<u32>) {
    is_enough.set(Steps::is_enough(x.get()).unwrap().into());
}

// ANCHOR: origin
struct Watch;

impl StepsHandler for Watch {
    fn is_enough(&self, value: u32) -> Result<bool, CallError> {
        let origin = graph::origin().expect("a replay's kernel calls");
        println!("replay {} of {} has the value {value}", origin.replay, origin.graph);
        Ok(value >= 3)
    }
}
// ANCHOR_END: origin

#[test]
fn a_graph_is_replayed() -> Result<(), Error> {
    let device = Device::builder("cpu").service(Steps::serve(Watch)).open()?;
    let stream = device.stream()?;
    let (x, is_enough) = (device.alloc_zeroed::<u32>(1)?, device.alloc_zeroed::<u32>(1)?);
    // ANCHOR: capture
    let one = Grid::new(1, 1);
    let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
        increment.launch(stream, one, (&x,))?; // recorded, not run
        ask.launch(stream, one, (&x, &is_enough)).map(drop)
    })?;
    let step = graph.named("step").instantiate()?;
    for _ in 0..3 {
        step.launch(&stream)?;
    }
    stream.synchronize()?;
    // ANCHOR_END: capture
    assert_eq!((x.read()?, is_enough.read()?), (vec![3], vec![1]));
    Ok(())
}
