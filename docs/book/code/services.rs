//! The chapter "Services".

use std::sync::mpsc::{self, Receiver};

// ANCHOR: service
use hostcall::{CallError, Caller, Device, Global, Grid, Lane, LaunchKernel, Output, kernel, service};
use hostcall::{Gather, Gathered};
use std::sync::Mutex;

#[service]
pub trait Warehouse {
    /// How many there are of an item.
    fn count(item: u64) -> Option<u64>;
    /// Notes that an item was sold.
    fn sold(caller: &Caller, item: u64);
    /// Writes an item's name into `out`.
    fn name_of(item: u64, out: &mut [u8]) -> bool;
}
// ANCHOR_END: service

// ANCHOR: handler
struct Shop {
    items: Vec<(String, u64)>,
    sales: Mutex<Vec<u64>>,
}

impl WarehouseHandler for Shop {
    fn count(&self, item: u64) -> Result<Option<u64>, CallError> {
        Ok(self.items.get(item as usize).map(|(_, count)| *count))
    }
    fn sold(&self, caller: &Caller, item: u64) -> Result<(), CallError> {
        println!("lane {} of its wave sold item {item}", caller.lane);
        self.sales.lock().unwrap().push(item);
        Ok(())
    }
    fn name_of(&self, item: u64, out: &mut Output<'_>) -> Result<bool, CallError> {
        match self.items.get(item as usize) {
            Some((name, _)) => out.push(name.as_bytes()).map(|()| true),
            None => Ok(false),
        }
    }
}
// ANCHOR_END: handler

// ANCHOR: call
#[kernel]
fn sell(lane: &Lane, items: &[u64], left: &[Global<u64>]) {
    let i = lane.global_id();
    // A call: the lane waits for the answer. Lanes of a wave that call together share a packet.
    let count = Warehouse::count(items[i]).unwrap();
    let mut name = [0; 16];
    let (is_known, len) = Warehouse::name_of(items[i], &mut name).unwrap();
    assert!(is_known && len <= name.len());
    // A post: nobody waits, and nobody learns how it ended.
    Warehouse::post_sold(items[i]).unwrap();
    left[i].set(count.unwrap_or(0));
}
// ANCHOR_END: call

#[test]
fn calls_and_posts() {
    let items = vec![("lamp".to_owned(), 3), ("chair".to_owned(), 0)];
    // ANCHOR: open
    let shop = Shop { items, sales: Mutex::default() };
    let device = Device::builder("cpu").service(Warehouse::serve(shop)).open().unwrap();
    // ANCHOR_END: open
    let stream = device.stream().unwrap();
    let (items, left) = (device.upload(&[0u64, 1]).unwrap(), device.alloc_zeroed::<u64>(2).unwrap());
    sell.launch(&stream, Grid::new(1, 2), (&items, &left)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(left.read().unwrap(), [3, 0]);
}

// ANCHOR: async
#[service]
trait Weather {
    /// Degrees at a place.
    fn at(latitude: f32, longitude: f32) -> f32;
}

struct Stations;

impl WeatherAsyncHandler for Stations {
    // As many calls wait at once as there are, and need no thread each.
    async fn at(&self, latitude: f32, _longitude: f32) -> Result<f32, CallError> {
        let answer = async { 30.0 - latitude.abs() / 3.0 }; // such as a request over the network
        Ok(answer.await)
    }
}

fn open() -> Result<Device, hostcall::Error> {
    Device::builder("cpu").async_service(Weather::serve_async(Stations)).open()
}
// ANCHOR_END: async

// ANCHOR: gathered
/// Words of a language, in a database that answers a thousand questions about as quickly as one.
#[service]
trait Words {
    /// How often a word occurs; its number stands for it.
    fn frequency(word: u64) -> Option<u32>;
}

struct Corpus(Database);

impl WordsGatheredHandler for Corpus {
    // `calls` are those of all waves that wait. Those that come meanwhile gather for the next batch.
    async fn frequency(&self, calls: Gathered<u64, Option<u32>>) {
        match self.0.frequencies(calls.arguments()).await {
            Ok(found) => calls.answer_all(found.into_iter().map(Ok)),
            // Lanes get a number that says what failed.
            Err(code) => calls.fail(CallError::Failed(code)),
        }
    }
}

fn open_corpus(database: Database) -> Result<Device, hostcall::Error> {
    let corpus = Words::serve_gathered(Corpus(database));
    Device::builder("cpu").gathered_service(corpus, Gather::default()).open()
}
// ANCHOR_END: gathered

/// A database as the handler sees it.
struct Database(std::collections::HashMap<u64, u32>);

impl Database {
    /// One query for all words.
    async fn frequencies(&self, words: &[u64]) -> Result<Vec<Option<u32>>, i32> {
        Ok(words.iter().map(|word| self.0.get(word).copied()).collect())
    }
}

#[kernel]
fn count_words(lane: &Lane, out: &[Global<u32>]) {
    let word = lane.global_id() as u64;
    out[lane.global_id()].set(Words::frequency(word).unwrap().unwrap_or(0));
}

#[test]
fn gathered_calls() {
    let device = open_corpus(Database((0..200).map(|word| (word, 2 * word as u32)).collect())).unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u32>(256).unwrap());
    count_words.launch(&stream, Grid::new(8, 32), (&out,)).unwrap();
    stream.synchronize().unwrap();
    assert!(
        (0..).zip(out.read().unwrap()).all(|(word, found)| found == if word < 200 { 2 * word } else { 0 })
    );
}

// ANCHOR: tokio
/// `runtime` is that of `#[tokio::main]`: `tokio::runtime::Handle::current()`.
fn open_on(runtime: tokio::runtime::Handle) -> Result<Device, hostcall::Error> {
    Device::builder("cpu").tokio(runtime).async_service(Weather::serve_async(Stations)).open()
}
// ANCHOR_END: tokio

#[test]
fn async_handlers_on_a_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let device = open_on(runtime.handle().clone()).unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<f32>(1).unwrap());
    between.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
    assert_eq!(out.read().unwrap(), [20.0]);
}

// ANCHOR: pending
/// Degrees at the way's middle, of which both ends are asked for at the same time.
#[kernel]
fn between(lane: &Lane, out: &Global<f32>) {
    let first = Weather::start_at(lane, 0.0, 10.0);
    let second = Weather::start_at(lane, 60.0, 10.0);
    // Here the kernel computes while the host does.
    out.set((first.wait().unwrap() + second.wait().unwrap()) / 2.0);
}
// ANCHOR_END: pending

#[test]
fn async_handlers() {
    let device = open().unwrap();
    let stream = device.stream().unwrap();
    let out = device.alloc_zeroed::<f32>(1).unwrap();
    between.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
    assert_eq!(out.read().unwrap(), [20.0]);
}

// ANCHOR: deadline
#[service]
trait Slow {
    fn answer() -> u32;
}

/// Takes another answer when the host's does not come in time.
#[kernel]
fn impatient(_: &Lane, out: &Global<u32>) {
    out.set(match Slow::within_us(10_000).answer() {
        Ok(answer) => answer,
        Err(CallError::TimedOut) => 1,
        Err(error) => panic!("no answer: {error:?}"),
    });
}
// ANCHOR_END: deadline

/// Answers when the test has ended.
struct Sleeper(Mutex<Receiver<()>>);

impl SlowHandler for Sleeper {
    fn answer(&self) -> Result<u32, CallError> {
        let _ = self.0.lock().unwrap().recv();
        Ok(2)
    }
}

#[test]
fn deadlines() {
    let (end, ended) = mpsc::channel();
    let device = Device::builder("cpu").service(Slow::serve(Sleeper(Mutex::new(ended)))).open().unwrap();
    let stream = device.stream().unwrap();
    let out = device.alloc_zeroed::<u32>(1).unwrap();
    impatient.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
    assert_eq!(out.read().unwrap(), [1]);
    drop(end);
}
