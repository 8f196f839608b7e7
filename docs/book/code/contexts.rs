//! The chapter "Kernels that others launch".

// ANCHOR: host
use hostcall::{CallError, Context, Device, service};

#[service(number = 700)]
trait Prices {
    fn of(item: u64) -> u64;
}

struct Shop(Vec<u64>);

impl PricesHandler for Shop {
    fn of(&self, item: u64) -> Result<u64, CallError> {
        self.0.get(item as usize).copied().ok_or(CallError::Failed(1))
    }
}

/// Returns what has to live as long as kernels call.
fn serve(device: &str, prices: Vec<u64>) -> Result<(Device, Context), hostcall::Error> {
    let device = Device::builder(device).service(Prices::serve(Shop(prices))).open()?;
    let context = device.context("prices")?; // `context.address().get()` is the kernel's argument
    Ok((device, context))
}
// ANCHOR_END: host

#[test]
fn a_context_has_an_address_of_its_own() {
    let (device, context) = serve("cpu", vec![5, 7]).unwrap();
    let other = device.context("others").unwrap();
    assert_ne!(context.address(), other.address());
    context.attend().unwrap();
    context.flush().unwrap();
    context.cancel().unwrap();
    context.renew().unwrap();
    device.close();
    assert!(context.flush().is_err());
}
