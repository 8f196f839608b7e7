//! A handler that waits for the kernel that waits for it gets an error that names both, not a deadlock.

use hostcall::device::{DeviceBuffer, Error};
use hostcall::hostcall_device::{CallError, Global, Lane, kernel, service};
use hostcall::{Device, Grid, Hostcall, HostcallRef, LaunchKernel, Stream};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

/// Waits for the device, from a handler.
#[service]
pub trait Waits {
    /// Waits in this way; returns whether it was refused.
    fn wait(way: u32) -> bool;
}

#[kernel]
fn ask(_: &Lane, way: u32, out: &[Global<u32>]) {
    let refused = Waits::wait(way);
    out[0].set(if refused == Ok(true) { 1 } else { 2 });
}

#[kernel]
fn add(_: &Lane, value: &[Global<u32>]) {
    value[0].set(value[0].get() + 1);
}

struct Things {
    stream: Stream,
    after: Stream,
    other: Stream,
    out: DeviceBuffer<u32>,
    beside: DeviceBuffer<u32>,
}

#[derive(Clone, Default)]
struct Handler(Arc<Mutex<Option<Arc<Things>>>>, Arc<Mutex<Vec<String>>>);

impl WaitsHandler for Handler {
    fn wait(&self, way: u32) -> Result<bool, CallError> {
        let things = self.0.lock().unwrap().clone().ok_or(CallError::Failed(1))?;
        let Things { stream, after, other, out, beside } = &*things;
        let result = match way {
            0 => stream.synchronize(),
            1 => out.read().map(drop),
            2 => out.write(&[1]),
            3 => stream.record().and_then(|event| event.wait()),
            // Another stream that waits for the kernel's.
            4 => stream.record().and_then(|event| after.wait_for(&event)).and_then(|()| after.synchronize()),
            // What does not wait for the kernel can be waited for.
            _ => add
                .launch(other, Grid::new(1, 1), (beside,))
                .and_then(|launch| launch.wait().map(drop))
                .and_then(|()| other.synchronize())
                .and_then(|()| beside.read().map(drop)),
        };
        let is_refused = matches!(&result, Err(Error::WouldDeadlock { .. }));
        if let Err(error) = result {
            self.1.lock().unwrap().push(error.to_string());
        }
        Ok(is_refused)
    }
}

#[kernel]
fn call_it(_: &Lane, out: &[Global<u32>], closure: HostcallRef<u32, u32>) {
    out[0].set(closure.call(0).unwrap());
}

/// Two streams, of one device or of two, with a handler or a host function each that waits for the other stream.
fn wait_in_a_circle(devices: [&Device; 2], functions: bool) {
    let streams = devices.map(|device| Arc::new(device.stream().unwrap()));
    let (both, told) = (Arc::new(Barrier::new(2)), Arc::new(Mutex::new(Vec::new())));
    for (at, device) in devices.iter().enumerate() {
        let (other, both, told) = (streams[1 - at].clone(), both.clone(), told.clone());
        let wait = move |_: u32| {
            both.wait();
            let waited = other.synchronize_for(Duration::from_secs(60));
            told.lock().unwrap().push(waited);
            1
        };
        if functions {
            streams[at].host_function(move || _ = wait(0)).unwrap();
        } else {
            let out = device.alloc_zeroed::<u32>(1).unwrap();
            let closure = Hostcall::continuous(device, wait).unwrap();
            call_it.launch(&streams[at], Grid::new(1, 1), (&out, &closure)).unwrap();
        }
    }
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    let told = std::mem::take(&mut *told.lock().unwrap());
    let [refused, waited] = &told[..] else { panic!("{told:?}") };
    match refused {
        Err(Error::WouldDeadlock { waiting, .. }) => {
            assert!(waiting.contains("for which others wait"), "{waiting}")
        }
        other => panic!("{other:?}"),
    }
    assert!(waited.is_ok(), "{waited:?}");
}

/// The one that waits second is refused, and the other one gets what it waits for.
#[test]
fn handlers_and_functions_do_not_wait_in_a_circle() {
    let (one, other) = (Device::open("cpu").unwrap(), Device::open("cpu").unwrap());
    for functions in [false, true] {
        wait_in_a_circle([&one, &one], functions);
        wait_in_a_circle([&one, &other], functions);
    }
}

/// Two streams, each with a host function that waits for the other stream: the second one, with this limit,
/// once the first one is inside, which waits for a second at most. Returns how the waits ended.
fn wait_for_one_with_a_limit(limit: Option<Duration>) -> [Result<(), Error>; 2] {
    let device = Device::open("cpu").unwrap();
    let [one, other] = [(); 2].map(|()| Arc::new(device.stream().unwrap()));
    let (inside, is_inside) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let (waits_for, tells) = (other.clone(), tell.clone());
    let first = move || {
        inside.send(()).unwrap();
        tells.send((0, waits_for.synchronize_for(Duration::from_secs(1)))).unwrap();
    };
    let waits_for = one.clone();
    let second = move || {
        is_inside.recv().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let waited = match limit {
            None => waits_for.synchronize(),
            Some(limit) => waits_for.synchronize_for(limit),
        };
        tell.send((1, waited)).unwrap();
    };
    // The other stream has something to wait for before anybody does.
    other.host_function(second).unwrap();
    one.host_function(first).unwrap();
    [&one, &other].iter().for_each(|stream| stream.synchronize().unwrap());
    let mut told: Vec<_> = told.iter().collect();
    told.sort_by_key(|(at, _)| *at);
    let [first, second] = <[_; 2]>::try_from(told).unwrap().map(|(_, waited)| waited);
    [first, second]
}

/// Who waits with a limit goes on by itself, so that others may wait for it.
#[test]
fn a_wait_with_a_limit_refuses_no_longer_one() {
    for limit in [None, Some(Duration::from_secs(60))] {
        let [first, second] = wait_for_one_with_a_limit(limit);
        assert!(matches!(first, Err(Error::TimedOut { .. })), "{first:?}");
        assert!(second.is_ok(), "{second:?}");
    }
    // One that ends no later would find nothing else.
    let [first, second] = wait_for_one_with_a_limit(Some(Duration::from_millis(500)));
    let Err(refused @ Error::WouldDeadlock { has_limit: true, .. }) = second else { panic!("{second:?}") };
    assert!(refused.to_string().contains(" would not return before its limit: "), "{refused}");
    assert!(first.is_ok(), "{first:?}");
}

#[kernel]
fn call_and_panic(_: &Lane, closure: HostcallRef<u32, u32>) {
    let _ = closure.call(0);
    panic!("so that the stream stops");
}

/// What is added to a stream while a handler waits for it may wait for the handler's kernel: the handler does not wait for that,
/// and is told that the stream failed.
#[test]
fn a_stream_that_waits_for_the_kernel_later_is_not_waited_for() {
    let device = Device::open("cpu").unwrap();
    let [own, other] = [(); 2].map(|()| Arc::new(device.stream().unwrap()));
    let out = device.alloc_zeroed::<u32>(1).unwrap();
    let (go, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let gate = Hostcall::continuous(&device, move |_: u32| gone.lock().unwrap().recv().map_or(0, |()| 1));
    call_and_panic.launch(&other, Grid::new(1, 1), (&gate.unwrap(),)).unwrap();
    let (tell, told) = mpsc::channel();
    let (inside, is_inside) = mpsc::channel();
    let waits_for = other.clone();
    let wait = Hostcall::continuous(&device, move |_: u32| {
        inside.send(()).unwrap();
        tell.send(waits_for.synchronize_for(Duration::from_secs(20))).unwrap();
        1
    });
    call_it.launch(&own, Grid::new(1, 1), (&out, &wait.unwrap())).unwrap();
    is_inside.recv().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    other.wait_for(&own.record().unwrap()).unwrap();
    go.send(()).unwrap();
    let told = told.recv().unwrap();
    assert!(matches!(told, Err(Error::Launch { .. })), "{told:?}");
    own.synchronize().unwrap();
    other.synchronize().unwrap();
}

/// Work that comes to use a buffer while a handler waits for it waits for the handler's copy, and may wait for its kernel.
#[test]
fn a_buffer_that_waits_for_the_kernel_later_is_read_before() {
    let device = Device::open("cpu").unwrap();
    let [own, before, after] = [(); 3].map(|()| device.stream().unwrap());
    let [out, buffer] = [(); 2].map(|()| Arc::new(device.alloc_zeroed::<u32>(1).unwrap()));
    let (go, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let gate = Hostcall::continuous(&device, move |_: u32| gone.lock().unwrap().recv().map_or(0, |()| 1));
    call_it.launch(&before, Grid::new(1, 1), (&*buffer, &gate.unwrap())).unwrap();
    let (tell, told) = mpsc::channel();
    let (inside, is_inside) = mpsc::channel();
    let waits_for = buffer.clone();
    let wait = Hostcall::continuous(&device, move |_: u32| {
        inside.send(()).unwrap();
        tell.send(waits_for.read()).unwrap();
        1
    });
    call_it.launch(&own, Grid::new(1, 1), (&*out, &wait.unwrap())).unwrap();
    is_inside.recv().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    after.wait_for(&own.record().unwrap()).unwrap();
    after.fill(&buffer, 7).unwrap();
    go.send(()).unwrap();
    let told = told.recv_timeout(Duration::from_secs(20)).expect("the handler goes on");
    assert!(matches!(told.as_deref(), Ok([1])), "{told:?}");
    assert_eq!(buffer.read().unwrap(), [7]);
}

#[test]
fn a_handler_that_would_wait_for_its_kernel_is_refused() {
    let handler = Handler::default();
    let device = Device::builder("cpu").service(Waits::serve(handler.clone())).open().unwrap();
    let things = Arc::new(Things {
        stream: device.stream().unwrap(),
        after: device.stream().unwrap(),
        other: device.stream().unwrap(),
        out: device.alloc_zeroed(1).unwrap(),
        beside: device.alloc_zeroed(1).unwrap(),
    });
    *handler.0.lock().unwrap() = Some(things.clone());
    for way in 0..6u32 {
        things.out.write(&[0]).unwrap();
        ask.launch(&things.stream, Grid::new(1, 1), (way, &things.out)).unwrap();
        things.stream.synchronize().unwrap();
        assert_eq!(things.out.read().unwrap(), [if way < 5 { 1 } else { 2 }], "way {way}");
    }
    assert_eq!(things.beside.read().unwrap(), [1]);
    let told = handler.1.lock().unwrap();
    assert_eq!(told.len(), 5);
    assert!(told.iter().all(|told| told.contains("kernel ask") && told.contains("wait")), "{told:?}");
    assert!(told.iter().all(|told| told.contains(" would never return: ")), "{told:?}");
    // Handler and device would keep each other alive.
    *handler.0.lock().unwrap() = None;
}
