//! Subscribers of `tracing` are a user's: one that never returns, and panics elsewhere, delays and ends nothing. The only test of
//! its process, which has one subscriber.

use hostcall::services::{Builtins, Sink, Stream};
use hostcall::{CallError, Device, Global, Grid, Lane, LaunchKernel, kernel, println, service};
use std::sync::mpsc;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

/// Whether events have come on threads of hostcall's, and may go on.
static EVENTS: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

/// Holds the first event of a thread of hostcall's up, and panics then.
struct Bad;

impl Subscriber for Bad {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        if std::thread::current().name().is_some_and(|name| name.starts_with("hostcall")) {
            let mut events = EVENTS.0.lock().unwrap();
            events.0 = true;
            drop(EVENTS.1.wait_while(events, |events| !events.1).unwrap());
            panic!("a subscriber that panics, as a test");
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[service(crate = hostcall)]
trait Slow {
    fn hold() -> u32;
}

struct Held(Mutex<mpsc::Receiver<()>>);

impl SlowHandler for Held {
    fn hold(&self) -> Result<u32, CallError> {
        let _ = self.0.lock().unwrap().recv();
        Ok(1)
    }
}

#[kernel(crate = hostcall)]
fn time_out(_lane: &Lane, out: &[Global<u32>]) {
    for round in out {
        let timed_out = Slow::within_us(20_000).hold() == Err(CallError::TimedOut);
        round.set(timed_out.into());
        println!(crate = hostcall, "a line");
    }
}

#[test]
fn a_bad_subscriber_holds_nobody_up() {
    tracing::subscriber::set_global_default(Bad).unwrap();
    let (release, held) = mpsc::channel();
    let sink = Sink::writers(Fails, std::io::sink());
    let builtins = Builtins::builder().output(sink.clone()).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).service(Slow::serve(Held(Mutex::new(held))));
    let device = device.open().unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u32>(5).unwrap());
    time_out.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
    stream.synchronize_for(LONG).unwrap();
    assert_eq!(out.read().unwrap(), [1; 5]);
    assert!(EVENTS.0.lock().unwrap().0, "there was no event");
    assert!(sink.write(Stream::Stdout, b"text").is_err());
    EVENTS.0.lock().unwrap().1 = true;
    EVENTS.1.notify_all();
    // The threads go on.
    sink.write(Stream::Stderr, b"text").unwrap();
    assert!(sink.flush_until(None).is_err());
    time_out.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
    stream.synchronize_for(LONG).unwrap();
    assert_eq!(device.server().failure(), None);
    drop(release);
}

/// A writer that fails.
struct Fails;

impl std::io::Write for Fails {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
