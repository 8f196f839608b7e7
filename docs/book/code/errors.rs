//! The chapter "Errors and panics".

// ANCHOR: calls
use hostcall::device::LaunchFailure;
use hostcall::{CallError, Device, Error, Global, Grid, Lane, LaunchKernel, kernel, service};

#[service]
trait Divider {
    fn divide(a: u32, b: u32) -> u32;
}

struct Host;

/// The handler's own code for what it does not do.
const DIVIDED_BY_ZERO: i32 = 1;

impl DividerHandler for Host {
    fn divide(&self, a: u32, b: u32) -> Result<u32, CallError> {
        assert!(a < 1000, "a bug of the handler");
        a.checked_div(b).ok_or(CallError::Failed(DIVIDED_BY_ZERO))
    }
}

#[kernel]
fn divide(lane: &Lane, a: &[u32], b: &[u32], out: &[Global<u32>]) {
    let i = lane.global_id();
    out[i].set(match Divider::divide(a[i], b[i]) {
        Ok(quotient) => quotient,
        Err(CallError::Failed(DIVIDED_BY_ZERO)) => 0,
        Err(CallError::Panicked) => 1, // the server goes on
        Err(error) => panic!("lane {i}: {error:?}"),
    });
}
// ANCHOR_END: calls

#[test]
fn calls_end_with_a_result_or_an_error() {
    let device = Device::builder("cpu").service(Divider::serve(Host)).open().unwrap();
    let stream = device.stream().unwrap();
    let (a, b) = (device.upload(&[8u32, 8, 8000]).unwrap(), device.upload(&[4u32, 0, 4]).unwrap());
    let out = device.alloc_zeroed::<u32>(3).unwrap();
    divide.launch(&stream, Grid::new(1, 3), (&a, &b, &out)).unwrap();
    assert_eq!(out.read().unwrap(), [2, 0, 1]);
}

// ANCHOR: panics
#[kernel]
fn check(lane: &Lane, x: &[u32]) {
    let i = lane.global_id();
    assert!(x[i] < 10, "number {i} is {}", x[i]);
}

fn check_all(device: &Device, x: &[u32]) -> Result<(), Error> {
    let stream = device.stream()?;
    let x = device.upload(x)?;
    check.launch(&stream, Grid::new(1, x.len() as u32), (&x,))?;
    match stream.synchronize() {
        Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(panic), others }, .. }) => {
            println!("{}:{}: {}, and {others} more", panic.file, panic.line, panic.message);
            Ok(())
        }
        other => other,
    }
}
// ANCHOR_END: panics

#[test]
fn a_panic_is_an_error() {
    let device = Device::open("cpu").unwrap();
    check_all(&device, &[1, 2, 300, 4]).unwrap();
    let stream = device.stream().unwrap();
    let x = device.upload(&[1u32, 20]).unwrap();
    check.launch(&stream, Grid::new(1, 2), (&x,)).unwrap();
    let text = stream.synchronize().unwrap_err().to_string();
    assert!(text.starts_with("kernel check: lane 1 of workgroup (0, 0, 0) panicked at "), "{text}");
    assert!(text.ends_with(": number 1 is 20"), "{text}");
    // The device and the stream go on.
    let x = device.upload(&[1u32, 2]).unwrap();
    check.launch(&stream, Grid::new(1, 2), (&x,)).unwrap();
    stream.synchronize().unwrap();
}
