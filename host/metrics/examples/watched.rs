//! A program that hangs, to look into: one kernel asks for prices again and again, another waits for an answer that never comes.
//! It says `ready`, and ends when its standard input does. `scripts/metrics-check` looks into it.
//!
//! With a number as argument, as many other waves wait for flags.
//!
//! `cargo run -p hostcall-metrics --example watched --features otlp,serve`, and beside it `hostcall top` or `hostcall serve`.

use hostcall::hostcall_device::waits::flag;
use hostcall::{CallError, Device, Global, Grid, Lane, LaunchKernel, kernel, println, service, span};
use hostcall_metrics::otlp::Push;
use hostcall_metrics::prometheus;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What kernels ask the host for.
#[service(crate = hostcall)]
trait Prices {
    /// The price of an item, if it has one.
    fn of(item: u32) -> Option<u64>;
}

/// What is answered sometimes.
#[service(crate = hostcall)]
trait Approval {
    fn of_order(order: u32) -> bool;
}

/// Waves that wait for the stock of one shelf.
const WAVES_A_LAUNCH: u32 = 50;

struct Shop;

impl PricesHandler for Shop {
    fn of(&self, item: u32) -> Result<Option<u64>, CallError> {
        match item {
            0..100 => Ok(Some(u64::from(item) * 3)),
            100..128 => Ok(None),
            _ => Err(CallError::Failed(1)),
        }
    }
}

/// Lets small orders pass. Others wait for somebody who never comes, until the program ends.
struct Nobody(Mutex<Receiver<bool>>);

impl ApprovalHandler for Nobody {
    fn of_order(&self, order: u32) -> Result<bool, CallError> {
        if order < 5 {
            return Ok(true);
        }
        self.0.lock().unwrap().recv().map_err(|_| CallError::Cancelled)
    }
}

/// Asks for the price of each lane's item, until it is told to end.
#[kernel(crate = hostcall)]
fn ask_prices(lane: &Lane, ends: &[Global<u32>]) {
    while ends[0].get() == 0 {
        let _asks = span!("asks");
        let _ = Prices::of(lane.global_id() as u32);
    }
}

/// Asks for two approvals.
#[kernel(crate = hostcall)]
fn place_order(lane: &Lane) {
    let _ = Approval::of_order(1);
    if lane.global_id() == 0 {
        println!("order <b>7</b> is placed & waits for \"approval\"");
    }
    let _ = Approval::of_order(7);
}

/// Waits for the stock of shelves, each lane for another one's.
#[kernel(crate = hostcall)]
fn wait_for_stock(lane: &Lane, ends: &[Global<u32>], shelf: u32) {
    let own = u64::from(shelf) * 1000 + u64::from(lane.workgroup()[0]);
    lane.wait_for(flag("stock").peer(shelf).sequence(own), || ends[0].get() != 0);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (_never, comes) = channel();
    let device = Device::builder("cpu")
        .inline_service(Prices::serve(Shop))
        .service(Approval::serve(Nobody(Mutex::new(comes))))
        .open()?;
    let _push = match std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT") {
        Ok(collector) => {
            Some(Push::start(&collector, Duration::from_millis(500), |error| std::eprintln!("{error}"))?)
        }
        Err(_) => None,
    };
    std::println!("http://{}/metrics", prometheus::serve("127.0.0.1:0")?);
    let (asks, orders) = (device.stream()?, device.stream()?);
    let ends = device.alloc_zeroed::<u32>(1)?;
    ask_prices.launch(&asks, Grid::new(2, 80), (&ends,))?;
    place_order.launch(&orders, Grid::new(1, 64), ())?;
    let waves: u32 = std::env::args().nth(1).map_or(Ok(0), |waves| waves.parse())?;
    // Each launch in a stream of its own, so that all of them run.
    let shelves: Vec<_> =
        (0..waves.div_ceil(WAVES_A_LAUNCH)).map(|_| device.stream()).collect::<Result<_, _>>()?;
    for (shelf, stream) in (0..).zip(&shelves) {
        let left = (waves - shelf * WAVES_A_LAUNCH).min(WAVES_A_LAUNCH);
        wait_for_stock.launch(stream, Grid::new(left, 1), (&ends, shelf))?;
    }
    std::println!("ready");
    std::io::read_to_string(std::io::stdin())?;
    device.close();
    Ok(())
}
