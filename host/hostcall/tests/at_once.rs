//! Calls that are answered without waiting where they can be, and memory that lanes lend for their replies.

use hostcall::hostcall_device::{CallError, Global, Lane, fs, kernel, service};
use hostcall::service::{Output, Reply, Request, Service};
use hostcall::services::Builtins;
use hostcall::{Device, Grid, LaunchKernel};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that lanes ask for: enough to lend memory for.
const BYTES: usize = 10_000;

#[service]
trait Numbers {
    /// Fills `out` with bytes of `of`.
    fn fill(of: u64, out: &mut [u8]);
}

struct Filler;

impl NumbersHandler for Filler {
    fn fill(&self, of: u64, out: &mut Output<'_>) -> Result<(), CallError> {
        std::thread::sleep(Duration::from_millis(1));
        out.push(&vec![of as u8; out.capacity()])
    }
}

/// Fills at once for even numbers; what it has put into the reply for others counts for nothing.
struct Quick<S> {
    waits: S,
    at_once: Arc<AtomicU64>,
}

impl<S: Service> Service for Quick<S> {
    fn methods(&self) -> &[hostcall::hostcall_device::abi::service::Method] {
        self.waits.methods()
    }

    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        self.waits.call(method, request, reply)
    }

    fn may_call_at_once(&self, _: usize) -> bool {
        true
    }

    fn call_at_once(
        &self,
        _: usize,
        request: Request<'_>,
        reply: &mut dyn Reply,
    ) -> Option<Result<(), CallError>> {
        let (of,) = request.arguments::<(u64,)>().ok()?;
        let mut out = Output::new(reply, request.reply_capacity);
        let half = out.capacity() / 2;
        // In two parts, of which the first waits for nothing in any case.
        let first = out.fill_at_once(half, |bytes| {
            bytes.fill(of as u8);
            Some(half)
        });
        assert_eq!(first, Ok(Some(half)));
        if of % 2 == 1 {
            let nothing = out.fill_at_once(1, |bytes| {
                bytes.fill(0xff);
                None
            });
            assert_eq!((nothing, out.capacity()), (Ok(None), request.reply_capacity - half));
            return None;
        }
        self.at_once.fetch_add(1, Ordering::Relaxed);
        Some(out.push(&vec![of as u8; request.reply_capacity - half]))
    }
}

#[kernel]
fn ask(lane: &Lane, turns: u64, wrong: &[Global<u64>]) {
    let mut bytes = vec![0; BYTES];
    for turn in 0..turns {
        let of = lane.global_id() as u64 + turn;
        let filled = Numbers::fill(of, &mut bytes).map_or(0, |((), filled)| filled);
        if filled != BYTES || bytes.iter().any(|byte| *byte != of as u8) {
            wrong[lane.global_id()].set(turn + 1);
        }
    }
}

#[test]
fn calls_are_answered_at_once_or_by_a_thread_that_may_wait() {
    const WAVES: u32 = 20;
    let at_once = Arc::new(AtomicU64::new(0));
    let service = Quick { waits: Numbers::serve(Filler), at_once: at_once.clone() };
    let device = Device::builder("cpu").service(service).open().unwrap();
    let (stream, wrong) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(WAVES as usize).unwrap());
    ask.launch(&stream, Grid::new(WAVES, 1), (10, &wrong)).unwrap();
    stream.synchronize().unwrap();
    assert!(wrong.read().unwrap().iter().all(|turn| *turn == 0));
    assert_eq!(at_once.load(Ordering::Relaxed), u64::from(WAVES) * 10 / 2);
}

/// Lanes of one wave share a packet, which goes to threads that may wait.
#[test]
fn whole_waves_get_their_bytes() {
    let service = Quick { waits: Numbers::serve(Filler), at_once: Arc::default() };
    let device = Device::builder("cpu").service(service).open().unwrap();
    let (stream, wrong) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(70).unwrap());
    ask.launch(&stream, Grid::new(1, 70), (3, &wrong)).unwrap();
    stream.synchronize().unwrap();
    assert!(wrong.read().unwrap().iter().all(|turn| *turn == 0));
}

/// Reads pieces of each length about the least that is lent, past the end too, and writes them elsewhere.
#[kernel]
fn copy(lane: &Lane, len: u64, wrong: &[Global<u64>]) {
    let from = fs::OpenOptions::new().read().open("from").unwrap();
    let to = fs::OpenOptions::new().write().open("to").unwrap();
    let mut at = 0;
    for piece in [1, 39, 40, 41, 4095, 4096, 4097, 65_536, 300_000].into_iter().cycle() {
        let mut bytes = vec![0; piece];
        let got = from.read_at(at, &mut bytes).unwrap();
        if got as u64 != (piece as u64).min(len - at) {
            wrong[lane.global_id()].set(at + 1);
        }
        if got == 0 {
            break;
        }
        let mut put = 0;
        while put < got {
            put += to.write_at(at + put as u64, &bytes[put..got]).unwrap();
        }
        at += got as u64;
    }
}

#[test]
fn files_of_every_length_are_read_and_written_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..1_000_003u32).map(|at| (at * 7 + at / 251) as u8).collect();
    std::fs::write(dir.path().join("from"), &content).unwrap();
    std::fs::write(dir.path().join("to"), b"").unwrap();
    let builtins = Builtins::builder().dir(dir.path()).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let (stream, wrong) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(40).unwrap());
    // Lanes alone in their waves, and a wave of several.
    for (workgroups, lanes) in [(3, 1), (1, 40)] {
        copy.launch(&stream, Grid::new(workgroups, lanes), (content.len() as u64, &wrong)).unwrap();
        stream.synchronize().unwrap();
        assert!(wrong.read().unwrap().iter().all(|at| *at == 0));
        assert_eq!(std::fs::read(dir.path().join("to")).unwrap(), content);
        std::fs::write(dir.path().join("to"), b"").unwrap();
    }
}

/// A lane whose time is over goes on with its memory, which nobody writes any more.
#[kernel]
fn give_up(lane: &Lane, wrong: &[Global<u64>]) {
    let mut bytes = vec![1; BYTES];
    let result = Numbers::within_us(1).fill(3, &mut bytes);
    let before = bytes.clone();
    lane.pause();
    std::thread::sleep(Duration::from_millis(5));
    let is_whole = result.is_err() || before.iter().all(|byte| *byte == 3);
    if !is_whole || bytes != before {
        wrong[lane.global_id()].set(1);
    }
}

#[test]
fn what_a_lane_gave_up_is_not_written() {
    let device = Device::builder("cpu").service(Numbers::serve(Filler)).open().unwrap();
    let (stream, wrong) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(64).unwrap());
    give_up.launch(&stream, Grid::new(64, 1), (&wrong,)).unwrap();
    stream.synchronize().unwrap();
    assert!(wrong.read().unwrap().iter().all(|wrong| *wrong == 0));
}
