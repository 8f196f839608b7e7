//! The chapter "Graphs".

// ANCHOR: kernels
use hostcall::graph::{self, CaptureMode, Condition, Graph, NodePath};
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

#[kernel]
fn add(_: &Lane, x: &Global<u32>, by: u32) {
    x.set(x.get() + by);
}
// ANCHOR_END: kernels

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

#[test]
fn arguments_change() -> Result<(), Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let (x, y) = (device.alloc_zeroed::<u32>(1)?, device.alloc_zeroed::<u32>(1)?);
    let one = Grid::new(1, 1);
    // ANCHOR: set
    let mut graph = Graph::new(&device).named("sum");
    let node = graph.add_kernel(&add, one, (&x, 1u32))?;
    let sum = graph.instantiate()?;
    sum.launch(&stream)?; // adds 1
    sum.set(node, &add, one, (&x, 10u32))?;
    sum.launch(&stream)?; // adds 10
    // ANCHOR_END: set
    assert_eq!(x.read()?, [11]);

    let word = device.upload(&[1u32])?;
    let condition = Condition::word(&word)?;
    // ANCHOR: path
    let mut outer = Graph::new(&device);
    let whole = outer.add_graph(&graph)?;
    let choice = outer.add_if(&condition, &graph)?;
    let outer = outer.instantiate()?;
    outer.set(NodePath::from(whole).node(node), &add, one, (&y, 2u32))?;
    outer.set(NodePath::from(choice).body(0).node(node), &add, one, (&y, 3u32))?;
    // ANCHOR_END: path
    outer.launch(&stream)?;
    assert_eq!(y.read()?, [5]);

    // ANCHOR: update
    let mut other = Graph::new(&device);
    other.add_kernel(&add, one, (&y, 100u32))?;
    assert!(sum.update(&other)?); // later replays are the other graph's
    other.add_fill(&y, 0)?;
    let refused = sum.try_update(&other).unwrap_err(); // they still are as before
    println!("{refused}"); // .. node 1: there is 1 node, and 2 in the new graph
    // ANCHOR_END: update
    sum.launch(&stream)?;
    assert_eq!(y.read()?, [105]);
    Ok(())
}
