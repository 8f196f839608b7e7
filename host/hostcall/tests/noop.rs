//! A device over the backend that does nothing, from outside of hostcall: memory and copies, and no kernels.

use hostcall::device::seam::noop::Noop;
use hostcall::{Device, Global, Grid, Hostcall, Lane, LaunchKernel, kernel};
use std::sync::Arc;

#[kernel]
fn increment(_: &Lane, x: &Global<u32>) {
    x.set(x.get() + 1);
}

#[test]
fn a_device_that_runs_no_kernels_is_a_device() -> std::result::Result<(), hostcall::Error> {
    let device = Device::builder("noop").backend(Arc::new(Noop::new())).open()?;
    let (stream, other) = (device.stream()?, device.stream()?);
    let (x, y) = (device.upload(&[1u32, 2, 3])?, device.alloc_zeroed::<u32>(3)?);
    stream.copy(&y, &x)?;
    stream.fill(&x, 7)?;
    let filled = stream.record()?;
    other.wait_for(&filled)?;
    assert_eq!(other.read(&x)?.wait()?, [7; 3]);
    assert_eq!(y.read()?, [1, 2, 3]);
    let _closure = Hostcall::continuous(&device, |x: u32| x)?;

    let refused = increment.launch(&stream, Grid::new(1, 1), (&x,)).unwrap_err().to_string();
    assert_eq!(
        refused,
        "kernel increment is in no image for noop (cpu): its backend does not run the program's own kernels; load an \
         image that `hostcall build --target cpu` built, or open cpu"
    );
    stream.synchronize()?;
    device.close();
    assert!(matches!(device.stream(), Err(hostcall::Error::Closed)));
    // Memory is still there.
    let z = device.upload(&[5u32])?;
    assert_eq!((x.read()?, z.read()?), (vec![7; 3], vec![5]));
    Ok(())
}
