//! The chapter "Mathematics".

// ANCHOR: all
use hostcall::math::Float;
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel};

/// The normal distribution's density.
#[kernel]
fn density(lane: &Lane, x: &[f32], out: &[Global<f32>]) {
    let i = lane.global_id();
    if i < x.len() {
        // `(-x[i] * x[i] / 2.0).exp()` would be the standard library's on the software device.
        let height = Float::exp(-x[i] * x[i] / 2.0);
        out[i].set(height / Float::sqrt(core::f32::consts::TAU));
    }
}
// ANCHOR_END: all

#[test]
fn densities() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let (x, out) = (device.upload(&[0.0f32, 1.0]).unwrap(), device.alloc_zeroed::<f32>(2).unwrap());
    density.launch(&stream, Grid::lanes(2), (&x, &out)).unwrap();
    let found = out.read().unwrap();
    assert!((found[0] - 0.398_942_3).abs() < 1e-6 && (found[1] - 0.241_970_7).abs() < 1e-6, "{found:?}");
}
