//! Async handlers on a runtime of the user's, and futures that nobody waits for any more.

use hostcall::{CallError, Device, Global, Grid, Lane, LaunchKernel, kernel, service};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const LONG: Duration = Duration::from_secs(60);

#[service(crate = hostcall)]
trait Sleeps {
    fn sleep(ms: u64) -> u64;
    fn note(ms: u64);
}

/// Tells when a future of its is dropped.
struct Sleeper(Sender<u64>, Sender<()>);

struct Told<'a>(&'a Sender<u64>, u64);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(self.1);
    }
}

impl SleepsAsyncHandler for Sleeper {
    async fn sleep(&self, ms: u64) -> Result<u64, CallError> {
        let _told = Told(&self.0, ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        // A task of the runtime's.
        tokio::spawn(async move { ms + 1 }).await.map_err(|_| CallError::Failed(1))
    }

    async fn note(&self, ms: u64) -> Result<(), CallError> {
        let _ = self.1.send(());
        self.sleep(ms).await.map(drop)
    }
}

/// Sleeps in the host, each lane for another time; from 10 s on with a deadline.
#[kernel(crate = hostcall)]
fn sleep(lane: &Lane, ms: &[u64], got: &[Global<u64>]) {
    let i = lane.global_id();
    if i < ms.len() {
        let slept = match ms[i] {
            10_000.. => Sleeps::within_us(20_000).sleep(ms[i]),
            _ => Sleeps::sleep(ms[i]),
        };
        got[i].set(match slept {
            Ok(slept) => slept,
            Err(CallError::TimedOut) => 10,
            Err(CallError::Cancelled) => 20,
            Err(_) => 30,
        });
    }
}

#[kernel(crate = hostcall)]
fn post(_lane: &Lane, ms: u64) {
    Sleeps::post_note(ms).unwrap();
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

fn run(device: &Device, ms: &[u64]) -> Vec<u64> {
    let (stream, times) = (device.stream().unwrap(), device.upload(ms).unwrap());
    let got = device.alloc_zeroed::<u64>(ms.len()).unwrap();
    sleep.launch(&stream, Grid::new(1, ms.len() as u32), (&times, &got)).unwrap();
    stream.synchronize_for(LONG).unwrap();
    got.read().unwrap()
}

#[test]
fn handlers_wait_for_timers_of_the_runtime() {
    let (runtime, (drops, dropped), (begins, begun)) = (runtime(), channel(), channel());
    let device = Device::builder("cpu").async_service(Sleeps::serve_async(Sleeper(drops, begins)));
    let device = device.tokio(runtime.handle().clone()).open().unwrap();
    assert_eq!(run(&device, &[1, 20, 3]), [2, 21, 4]);
    assert_eq!(dropped.iter().take(3).sum::<u64>(), 24);
    // A deadline drops the handler's future.
    assert_eq!(run(&device, &[3_600_000, 1]), [10, 2]);
    let mut told: Vec<_> =
        (0..2).map(|_| dropped.recv_timeout(LONG).expect("the future is dropped")).collect();
    told.sort_unstable();
    assert_eq!(told, [1, 3_600_000]);
    // So does the end of the device, also that of a post.
    let (stream, ms) = (device.stream().unwrap(), 9_999_999);
    post.launch(&stream, Grid::new(1, 1), (ms,)).unwrap();
    begun.recv_timeout(LONG).expect("the post is handled");
    device.close();
    assert_eq!(dropped.recv_timeout(LONG), Ok(ms));
}

#[test]
fn calls_end_with_the_runtime() {
    let (runtime, (drops, _dropped), (begins, _begun)) = (runtime(), channel(), channel());
    let device = Device::builder("cpu").async_service(Sleeps::serve_async(Sleeper(drops, begins)));
    let device = device.tokio(runtime.handle().clone()).open().unwrap();
    let (stream, ms) = (device.stream().unwrap(), device.upload(&[9_999_u64]).unwrap());
    let got = device.alloc_zeroed::<u64>(1).unwrap();
    sleep.launch(&stream, Grid::new(1, 1), (&ms, &got)).unwrap();
    while device.waiting().is_empty() {
        std::thread::yield_now();
    }
    drop(runtime);
    stream.synchronize_for(LONG).unwrap();
    assert!([20, 30].contains(&got.read().unwrap()[0]));
    // Later ones are refused.
    assert_eq!(run(&device, &[1]), [30]);
}
