//! The chapter "Closures".

// ANCHOR: kernel
use hostcall::{
    CallError, Device, Global, Grid, Hostcall, HostcallRef, HostcallState, Lane, LaunchKernel, kernel,
};

/// Adds what the host says to each number: one call for all lanes of a workgroup.
#[kernel]
fn add(lane: &Lane, y: &[Global<f32>], add: HostcallRef<f32, f32>) {
    let sum = lane.once_per_workgroup(|| add.call(y[0].get()).unwrap());
    y[lane.global_id()].set(sum);
}
// ANCHOR_END: kernel

#[test]
fn a_closure_is_called() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let y = device.upload(&[1.0f32; 64]).unwrap();
    // ANCHOR: once
    let offset = 42.0;
    let closure = Hostcall::once(&device, move |x: f32| x + offset).unwrap();
    add.launch(&stream, Grid::new(1, 64), (&y, &closure)).unwrap();
    stream.synchronize().unwrap();
    assert!(closure.is_finished()); // it was for one call
    // ANCHOR_END: once
    assert_eq!(y.read().unwrap(), [43.0; 64]);
}

// ANCHOR: continuous
/// Asks until the host says that it is enough.
#[kernel]
fn ask(_: &Lane, next: HostcallRef<(u32, u32), u32>, sum: &Global<u32>) {
    let mut number = 0;
    loop {
        match next.call((sum.get(), number)) {
            Ok(answer) => sum.set(sum.get() + answer),
            Err(CallError::NoSuchService) => break, // it takes no more calls
            Err(error) => panic!("{error:?}"),
        }
        number += 1;
    }
}
// ANCHOR_END: continuous

#[test]
fn a_continuous_closure_is_finished() {
    use std::sync::{Arc, OnceLock};
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let sum = device.alloc_zeroed::<u32>(1).unwrap();
    // ANCHOR: finish
    let this = Arc::new(OnceLock::<Hostcall<(u32, u32), u32>>::new());
    let own = this.clone();
    let closure = Hostcall::continuous(&device, move |(sum, number): (u32, u32)| {
        if sum >= 10 {
            own.get().expect("it is set before the launch").finish();
        }
        number
    });
    let closure = this.get_or_init(|| closure.unwrap());
    ask.launch(&stream, Grid::new(1, 1), (closure, &sum)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(closure.state(), HostcallState::Finished);
    // ANCHOR_END: finish
    assert_eq!(sum.read().unwrap(), [15]);
}
