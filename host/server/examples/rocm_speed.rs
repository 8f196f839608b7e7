//! What a call over a hostcall buffer takes between two threads, by layout, packets and lanes: beside the time that a flag
//! takes there and back, a bare loop that answers without services, messages and sleeps, and a call by hostcall's own
//! protocol. And how soon a consumer that sleeps finds a packet.
//!
//! ```sh
//! cargo run --release -p hostcall-server --example rocm_speed
//! ```

use hostcall_abi::layout::{Layout as OwnLayout, RingEntries, SLOT_GROUP};
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_channel::SharedMemory;
use hostcall_channel::rocm::client;
use hostcall_channel::rocm::host::Host;
use hostcall_server::rocm::{Consumer, Layout, Mode, Options, PacketMemory, Services, Version};
use hostcall_server::{LaunchRecord, Server};
use hostcall_service::{Calls, Reply, Request, Service};
use std::error::Error;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use waves::{NULL, Waves};

#[allow(dead_code, reason = "the other example has them post, too")]
mod waves;

/// Turns that are timed at a time, and how often that is done.
const TURNS: u32 = 20_000;
const TIMES: u32 = 7;

/// Waves that call at the same time.
const WAVES: u32 = 132;

/// Calls of a consumer that sleeps.
const WAKE_UPS: u32 = 200;

/// Returns the shortest time of a turn in ns.
fn best(turns: u32, mut turn: impl FnMut()) -> f64 {
    let time = || {
        let begun = Instant::now();
        (0..turns).for_each(|_| turn());
        begun.elapsed().as_nanos() as f64 / f64::from(turns)
    };
    std::iter::repeat_with(time).take(TIMES as usize).fold(f64::INFINITY, f64::min)
}

/// A flag there and back between two threads.
fn flag() -> f64 {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let [there, back] = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let wait = |line: &Line, value| {
        while line.0.load(Ordering::Acquire) != value {
            spin_loop();
        }
    };
    let all = u64::from(TURNS * TIMES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=all {
                wait(&there, turn);
                back.0.store(turn, Ordering::Release);
            }
        });
        let mut turn = 0;
        best(TURNS, || {
            turn += 1;
            there.0.store(turn, Ordering::Release);
            wait(&back, turn);
        })
    })
}

/// Answers at once.
struct Null;

impl Service for Null {
    fn methods(&self) -> &'static [Method] {
        const { &[Method::untyped("Null::null", 300)] }
    }

    fn call(&self, _: usize, _: Request<'_>, _: &mut dyn Reply) -> Result<(), CallError> {
        Err(CallError::Malformed)
    }

    fn calls(&self, _: usize, calls: &mut Calls<'_>) {
        calls.answer_each(|()| Ok(()));
    }
}

/// A call by hostcall's own protocol, of so many waves at the same time.
fn own(count: u32) -> Result<f64, Box<dyn Error>> {
    let layout = OwnLayout {
        home_slots: 132 * SLOT_GROUP,
        extra_slots: 1024,
        lanes: 32,
        area_bytes: 64 * 32,
        large_areas: 256,
        large_area_bytes: 64 << 10,
        ring_entries: RingEntries { first: 2048, early: 512, other: 256 },
    };
    let memory = Arc::new(SharedMemory::allocate(layout.check()?));
    let server = Server::builder(memory.clone()).inline_service(Null).start()?;
    let launch = server.begin(LaunchRecord::default())?;
    let mut waves = Waves::new(memory, count);
    waves.own(launch);
    let turn = || {
        waves.ring(&NULL);
        while !waves.are_answered(&NULL) {
            spin_loop();
        }
    };
    Ok(best(TURNS / count.min(20), turn) / f64::from(count))
}

/// A buffer with a consumer that runs, and a service that adds one.
fn serve(version: Version, packets: u32) -> Result<(Consumer, Arc<PacketMemory>), Box<dyn Error>> {
    let services = Services::new();
    services.register(700, "increment", Mode::Inline, |packet| {
        packet.lanes().for_each(|(_, words)| words[0] += 1);
    })?;
    let buffer = Arc::new(PacketMemory::allocate(Layout::new(version, packets)?));
    let consumer = Consumer::new(&services, Options::default())?;
    consumer.register(&buffer)?;
    consumer.launch()?;
    Ok((consumer, buffer))
}

/// A call of so many lanes.
fn rocm(buffer: &PacketMemory, mask: u64) -> f64 {
    let mut lanes = [[0; 8]; 64];
    let time = best(TURNS, || client::call(buffer.packets(), 700, mask, &mut lanes, spin_loop));
    assert_eq!(lanes[0][0], u64::from(TURNS * TIMES));
    time
}

/// A call of one lane, of so many waves at the same time, which have their packets.
fn rocm_waves(buffer: &PacketMemory, count: u32) -> f64 {
    let claim = |_| client::claim(buffer.packets()).expect("there are as many packets");
    let packets: Vec<_> = (0..count).map(claim).collect();
    let turn = || {
        for packet in &packets {
            packet.write(0, &[1; 8]);
            packet.submit(700, 1);
        }
        for packet in &packets {
            while !packet.is_answered() {
                spin_loop();
            }
            assert_eq!(packet.read(0)[0], 2);
        }
    };
    let time = best(TURNS / count.min(20), turn) / f64::from(count);
    packets.into_iter().for_each(client::Packet::release);
    time
}

/// Calls of one lane and of all, and of waves at the same time, answered by a loop that does nothing else.
fn bare(version: Version, packets: u32) -> Result<[f64; 3], Box<dyn Error>> {
    let buffer = PacketMemory::allocate(Layout::new(version, packets)?);
    let is_over = AtomicBool::new(false);
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| {
            let (memory, mut found) = (buffer.packets(), Vec::new());
            let mut host = Host::new(buffer.layout(), memory);
            while !is_over.load(Ordering::Relaxed) {
                for place in 0..host.places() {
                    let _ = host.find(memory, place, &mut found);
                }
                for packet in found.drain(..) {
                    let mask = memory.read_header(packet).mask;
                    for lane in (0..64).filter(|lane| mask >> lane & 1 != 0) {
                        let words = memory.read(packet, lane);
                        memory.write(packet, lane, &[words[0] + 1, words[1]]);
                    }
                    host.answer(memory, packet);
                }
            }
        });
        let times = [rocm(&buffer, 1), rocm(&buffer, u64::MAX), rocm_waves(&buffer, WAVES)];
        is_over.store(true, Ordering::Relaxed);
        times
    }))
}

/// Processor time of the process, in seconds.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let mut nanoseconds = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += stat.split(' ').next().unwrap_or("0").parse::<f64>()?;
    }
    Ok(nanoseconds / 1e9)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (floor, one, many) = (flag(), own(1)?, own(WAVES)?);
    println!("a flag there and back: {floor:.0} ns");
    println!("hostcall's own protocol: {one:.0} ns a call, {many:.0} ns of {WAVES} waves at once\n");
    println!("layout  packets     1 lane   64 lanes  {WAVES} waves at once (÷ own)");
    for version in Version::ALL {
        let [lane, lanes, waves] = bare(version, 256)?;
        println!("{version:?}  bare  {lane:8.0} ns  {lanes:6.0} ns  {waves:6.0} ns ({:.2})", waves / many);
        for packets in [256, 1024, 9728, 65_536] {
            let (_consumer, buffer) = serve(version, packets)?;
            let [lane, lanes] = [1, u64::MAX].map(|mask| rocm(&buffer, mask));
            let waves = rocm_waves(&buffer, WAVES);
            let of_many = waves / many;
            println!("{version:?}  {packets:6} {lane:6.0} ns  {lanes:6.0} ns  {waves:6.0} ns ({of_many:.2})");
        }
    }
    let mut sleeps: Vec<Duration> = (0..WAKE_UPS)
        .map(|_| {
            let begun = Instant::now();
            std::thread::sleep(Duration::from_micros(900));
            begun.elapsed()
        })
        .collect();
    sleeps.sort();
    println!(
        "\nsleeps of 0.9 ms: half {:.0?}, longest {:.0?}",
        sleeps[sleeps.len() / 2],
        sleeps[sleeps.len() - 1]
    );
    println!("layout  packets  found by a consumer that sleeps after: half, longest; idle");
    for version in Version::ALL {
        for packets in [2048, 9728] {
            let (_consumer, buffer) = serve(version, packets)?;
            let mut times: Vec<Duration> = (0..WAKE_UPS)
                .map(|wake_up| {
                    // No multiple of the consumer's sleeps.
                    std::thread::sleep(Duration::from_micros(10_000 + 37 * u64::from(wake_up)));
                    let begun = Instant::now();
                    client::call(buffer.packets(), 700, 1, &mut [[0; 8]], spin_loop);
                    begun.elapsed()
                })
                .collect();
            times.sort();
            std::thread::sleep(Duration::from_secs(1));
            let before = processor_seconds()?;
            std::thread::sleep(Duration::from_secs(4));
            let idle = (processor_seconds()? - before) / 4.0 * 100.0;
            let (half, longest) = (times[times.len() / 2], times[times.len() - 1]);
            println!("{version:?}  {packets:7}  {half:.0?}, {longest:.0?}; {idle:.2} % of a core");
        }
    }
    Ok(())
}
