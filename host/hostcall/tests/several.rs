//! Several devices in one process: opened together, and copies from one to another.

use hostcall::{CallError, Device, DeviceBuffer, Error, Global, Grid, Lane, LaunchKernel, kernel, service};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, thread};

/// Longer than anything here takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn pair() -> [Device; 2] {
    [(); 2].map(|()| Device::open("cpu").unwrap())
}

#[kernel(crate = hostcall)]
fn set_when(lane: &Lane, flag: &[Global<u32>], out: &[Global<u64>], value: u64) {
    while flag[0].get() == 0 {
        lane.pause();
    }
    out[lane.global_id()].set(value);
}

#[kernel(crate = hostcall)]
fn add_one(lane: &Lane, values: &[Global<u64>]) {
    let value = &values[lane.global_id()];
    value.set(value.get() + 1);
}

/// Neither the copy nor what comes after it on the other device begins before what was asked for earlier there.
#[test]
fn a_copy_waits_for_the_other_device_and_holds_it_up() {
    let [a, b] = pair();
    let (on_a, beside_a, on_b) = (a.stream().unwrap(), a.stream().unwrap(), b.stream().unwrap());
    let flag = a.pinned::<u32>(1).unwrap();
    let (x, y) = (a.alloc_zeroed::<u64>(64).unwrap(), b.alloc_zeroed::<u64>(64).unwrap());
    set_when.launch(&on_a, Grid::new(1, 64), (&flag, &x, 7)).unwrap();
    on_b.copy(&y, &x).unwrap();
    beside_a.fill(&x, 9).unwrap();
    // What does not use the two goes on.
    let other = b.stream().unwrap();
    add_one.launch(&other, Grid::new(1, 64), (&b.alloc_zeroed::<u64>(64).unwrap(),)).unwrap();
    other.synchronize_for(PATIENCE).unwrap();
    flag[0].set(1);
    on_b.synchronize_for(PATIENCE).unwrap();
    beside_a.synchronize_for(PATIENCE).unwrap();
    assert_eq!((x.read().unwrap(), y.read().unwrap()), (vec![9; 64], vec![7; 64]));
}

/// Copies both ways at once, by two threads, between kernels that count: each value comes from somewhere whole, and none of the
/// threads waits for the other for ever.
#[test]
fn copies_both_ways_end() {
    let [a, b] = pair();
    let (x, y) = (a.alloc_zeroed::<u64>(1024).unwrap(), b.alloc_zeroed::<u64>(1024).unwrap());
    let work = |device: Device, to: DeviceBuffer<u64>, from: DeviceBuffer<u64>| {
        let stream = device.stream().unwrap();
        for _ in 0..300 {
            stream.copy(&to, &from).unwrap();
            add_one.launch(&stream, Grid::new(16, 64), (&to,)).unwrap();
        }
        stream.synchronize_for(PATIENCE).unwrap();
    };
    let threads = [
        thread::spawn({
            let (a, x, y) = (a.clone(), x.clone(), y.clone());
            move || work(a, x, y)
        }),
        thread::spawn({
            let (b, x, y) = (b.clone(), x.clone(), y.clone());
            move || work(b, y, x)
        }),
    ];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for values in [x.read().unwrap(), y.read().unwrap()] {
        assert!(values[0] > 0 && values.iter().all(|value| *value == values[0]), "{values:?}");
    }
}

/// A copy whose source's device never gets there ends with its own device, and with the source's.
#[test]
fn a_copy_that_waits_for_ever_ends_when_a_device_is_closed() {
    for closed in 0..2 {
        let devices = pair();
        let [a, b] = &devices;
        let (on_a, on_b) = (a.stream().unwrap(), b.stream().unwrap());
        let flag = a.pinned::<u32>(1).unwrap();
        let (x, y) = (a.alloc_zeroed::<u64>(64).unwrap(), b.alloc_zeroed::<u64>(64).unwrap());
        set_when.launch(&on_a, Grid::new(1, 64), (&flag, &x, 7)).unwrap();
        on_b.copy(&y, &x).unwrap();
        devices[closed].close();
        let ended = on_b.synchronize_for(PATIENCE);
        assert!(!matches!(ended, Err(Error::TimedOut { .. })), "{ended:?}");
        // A stream that is dropped waits for its work.
        flag[0].set(1);
    }
}

#[test]
fn what_is_out_of_reach_is_refused() {
    let [a, b] = pair();
    let stream = b.stream().unwrap();
    let (x, y) = (a.alloc_zeroed::<u64>(8).unwrap(), b.alloc_zeroed::<u64>(8).unwrap());
    assert!(matches!(stream.copy(&x, &y), Err(Error::OtherDevice { .. })), "the target is the other's");
    let of_gpu = Device::open("gfx942").unwrap().alloc_zeroed::<u64>(8).unwrap();
    assert!(matches!(stream.copy(&y, &of_gpu), Err(Error::OtherDevice { .. })));
    let mut graph = hostcall::graph::Graph::new(&b);
    assert!(matches!(graph.add_copy(&y, &x), Err(Error::OtherDevice { .. })));
    // A closed device's buffers can be read.
    x.write(&[3; 8]).unwrap();
    a.close();
    stream.copy(&y, &x).unwrap();
    assert_eq!(y.read().unwrap(), [3; 8]);
}

#[service]
trait Work {
    fn next() -> u64;
}

struct Queue {
    device: usize,
    next: Arc<AtomicU64>,
}

impl WorkHandler for Queue {
    fn next(&self) -> Result<u64, CallError> {
        self.next.fetch_add(1, Ordering::Relaxed);
        Ok(self.device as u64)
    }
}

#[kernel(crate = hostcall)]
fn ask(lane: &Lane, out: &[Global<u64>]) {
    out[lane.global_id()].set(Work::next().unwrap());
}

#[test]
fn all_devices_of_a_kind_are_opened() {
    let next = Arc::new(AtomicU64::new(0));
    let setup = |device, builder: hostcall::device::DeviceBuilder| {
        builder.inline_service(Work::serve(Queue { device, next: next.clone() }))
    };
    let devices = Device::open_all("cpu", setup).unwrap();
    let out = devices[0].alloc_zeroed::<u64>(64).unwrap();
    let stream = devices[0].stream().unwrap();
    ask.launch(&stream, Grid::new(1, 64), (&out,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!((out.read().unwrap(), next.load(Ordering::Relaxed)), (vec![0; 64], 64));
    let none = Device::open_all("sdk", |_, builder| builder).err().unwrap();
    assert!(matches!(none, Error::NoSuchDevice { .. }), "{none}");
}

/// Set for the process in which the software GPUs are two.
const CHILD: &str = "HOSTCALL_TEST_OF_TWO_GPUS";

/// Runs itself in a process with two GPUs.
#[test]
fn two_gpus() {
    if env::var_os(CHILD).is_none() {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "two_gpus", "--nocapture"]).env("SOFTHSA_AGENTS", "2");
        assert!(command.env(CHILD, "1").status().unwrap().success());
        return;
    }
    let devices = Device::open_all("gfx942", |_, builder| builder).unwrap();
    let names: Vec<_> = devices.iter().map(Device::name).collect();
    assert_eq!(names, ["gfx942", "gfx942:1"]);
    let [a, b] = &devices[..] else { unreachable!() };
    let (on_a, on_b) = (a.stream().unwrap(), b.stream().unwrap());
    let buffer = |device: &Device| device.alloc_zeroed::<u64>(100_000).unwrap();
    let (x, y, z) = (buffer(a), buffer(b), buffer(a));
    let values: Vec<u64> = (0..100_000).collect();
    on_a.write(&x, &values).unwrap();
    on_b.copy(&y, &x).unwrap();
    on_a.fill(&x, 1).unwrap();
    on_a.copy(&z, &y).unwrap();
    on_a.synchronize_for(PATIENCE).unwrap();
    assert!(z.read().unwrap() == values && x.read().unwrap() == vec![1; 100_000]);
}
