//! What a consumer thread needs for calls, posts and looks at idle lines, without a device: `cargo run --release -p
//! hostcall-server --example consumer`. This thread plays the consumer and plays, or has another thread play, the waves
//! of a GPU; what waves do is not timed.

use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{LINE_WORDS, Layout, RingEntries, SLOT_GROUP};
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::word::{Doorbell, LAP, PAYLOAD};
use hostcall_channel::SharedMemory;
use hostcall_server::{ByHand, LaunchRecord, Server};
use hostcall_service::{Calls, Posts, Reply, Request, Service};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use waves::{NULL, Waves};

mod waves;

/// An H200's channel.
const LAYOUT: Layout = Layout {
    home_slots: 132 * SLOT_GROUP,
    extra_slots: 1024,
    lanes: 32,
    area_bytes: 64 * 32,
    large_areas: 256,
    large_area_bytes: 64 << 10,
    ring_entries: RingEntries { first: 2048, early: 512, other: 256 },
};

const ROUNDS: u32 = 300;

/// Takes nothing, seven words, and posts of a word.
struct Bench;

static EVENTS: AtomicU64 = AtomicU64::new(0);

impl Service for Bench {
    fn methods(&self) -> &'static [Method] {
        const {
            &[
                Method::untyped("Bench::null", 300),
                Method::untyped("Bench::sum", 301),
                Method::untyped("Bench::event", 302),
            ]
        }
    }

    fn call(&self, _: usize, _: Request<'_>, _: &mut dyn Reply) -> Result<(), CallError> {
        Err(CallError::Malformed)
    }

    fn calls(&self, method: usize, calls: &mut Calls<'_>) {
        match method {
            0 => calls.answer_each(|()| Ok(())),
            _ => calls.answer_each(|(a, b, c, d, e, f, g): (u64, u64, u64, u64, u64, u64, u64)| {
                Ok([a, b, c, d, e, f, g].into_iter().fold(0, u64::wrapping_add))
            }),
        }
    }

    fn posts(&self, _: usize, posts: &mut Posts<'_>) -> usize {
        posts.for_each_of(|(value,): (u64,)| {
            EVENTS.store(EVENTS.load(Ordering::Relaxed).wrapping_add(value + 1), Ordering::Relaxed);
        })
    }
}

const SUM: Doorbell =
    Doorbell { service: 301, lanes: 32, argument_words: 7, result_words: 1, lines: true, ..NULL };

/// A thing that another thread does when it is told to.
struct Turns(AtomicU32);

impl Turns {
    fn set(&self, turn: u32) {
        self.0.store(turn, Ordering::Release);
    }

    fn wait(&self, turn: u32) {
        while self.0.load(Ordering::Acquire) != turn {
            std::hint::spin_loop();
        }
    }
}

/// Shortest and middle time of `timed`, in ns, with `before` in front of each and `after` behind it: these two on another
/// thread if `is_far`.
fn rounds(is_far: bool, mut before: impl FnMut() + Send, mut timed: impl FnMut(), rounds: u32) -> [f64; 2] {
    let mut times = vec![];
    let mut time = || {
        let start = Instant::now();
        timed();
        start.elapsed().as_nanos() as f64
    };
    if is_far {
        let turns = Turns(AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    turns.wait(2 * round);
                    before();
                    turns.set(2 * round + 1);
                }
            });
            for round in 0..rounds {
                turns.wait(2 * round + 1);
                times.push(time());
                turns.set(2 * round + 2);
            }
        });
    } else {
        for _ in 0..rounds {
            before();
            times.push(time());
        }
    }
    times.sort_by(f64::total_cmp);
    [times[0], times[times.len() / 2]]
}

fn tell(what: &str, unit: &str, [least, middle]: [f64; 2], count: u32) {
    let each = |time: f64| time / f64::from(count);
    println!("{what:48} {:9.2} ns {unit} ({:.2} at least)", each(middle), each(least));
}

fn serve(run: impl FnOnce(Arc<SharedMemory>, LaunchId, &mut ByHand<'_>)) {
    let memory = Arc::new(SharedMemory::allocate(LAYOUT.check().expect("the layout is good")));
    let server = Server::builder(memory.clone()).inline_service(Bench);
    let run = |server: &Server, hand: &mut ByHand<'_>| {
        let launch = server.begin(LaunchRecord::default()).expect("there is room for a launch");
        run(memory, launch, hand);
    };
    server.by_hand(run).expect("the server starts");
}

fn calls(name: &str, bell: &Doorbell, count: u32, is_far: bool) {
    serve(|memory, launch, hand| {
        let mut waves = Waves::new(memory, count);
        waves.own(launch);
        // The first calls make the lines hot. After one of a lane alone, whole waves' laps differ.
        for first in [&NULL, bell] {
            waves.ring(first);
            while !waves.are_answered(first) {
                hand.wake_up(false);
            }
        }
        let before = || {
            assert!(waves.are_answered(bell), "a pass answers all calls");
            waves.ring(bell);
        };
        let times = rounds(is_far, before, || _ = hand.pass(), ROUNDS);
        tell(&format!("{name}, {count} waves{}", far(is_far)), "a call", times, count);
    });
}

fn posts(count: u32, each: u32, is_far: bool) {
    serve(|memory, launch, hand| {
        let mut waves = Waves::new(memory, count);
        waves.post(launch, each - 1);
        while !waves.are_taken() {
            hand.wake_up(false);
        }
        let before = || {
            assert!(waves.are_taken(), "a pass takes all posts");
            waves.post(launch, each);
        };
        let times = rounds(is_far, before, || _ = hand.pass(), ROUNDS);
        tell(&format!("posts, {count} rings of {each}{}", far(is_far)), "a post", times, count * each);
    });
}

fn far(is_far: bool) -> &'static str {
    if is_far { ", lines of another core" } else { "" }
}

/// Reads as much as the caches hold, so that nothing else is in them.
fn forget(rubbish: &[u64]) {
    std::hint::black_box(
        rubbish.iter().step_by(LINE_WORDS).fold(0, |sum: u64, word| sum.wrapping_add(*word)),
    );
}

fn idle() {
    serve(|_, _, hand| {
        let rubbish = vec![1u64; 16 << 20];
        tell("idle: a pass", "", rounds(false, || (), || _ = hand.pass(), ROUNDS), 1);
        for (what, again) in [("the first wake-up", false), ("a later wake-up", true)] {
            let times = rounds(false, || (), || _ = hand.wake_up(again), ROUNDS);
            tell(&format!("idle: {what}"), "", times, 1);
            let times = rounds(false, || forget(&rubbish), || _ = hand.wake_up(again), 30);
            tell(&format!("idle: {what}, nothing in the caches"), "", times, 1);
        }
    });
}

fn main() {
    const { assert!(LAP == !PAYLOAD) };
    let only: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u32> = only.iter().filter_map(|only| only.parse().ok()).collect();
    let wanted = |name: &str| numbers.len() == only.len() || only.iter().any(|only| only == name);
    let kinds = |counts: [u32; 3]| {
        let counts = counts.into_iter().filter(|count| numbers.is_empty() || numbers.contains(count));
        counts.flat_map(|count| [(count, false), (count, true)])
    };
    if wanted("calls") {
        kinds([132, 1056, 8448]).for_each(|(count, is_far)| calls("one lane", &NULL, count, is_far));
    }
    if wanted("wide") {
        kinds([1, 132, 1056]).for_each(|(count, is_far)| calls("32 lanes of 64 B", &SUM, count, is_far));
    }
    if wanted("posts") {
        kinds([1, 132, 1056])
            .for_each(|(count, is_far)| posts(count, if count < 1056 { 256 } else { 128 }, is_far));
    }
    if wanted("idle") {
        idle();
    }
}
