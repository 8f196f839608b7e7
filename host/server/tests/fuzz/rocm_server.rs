//! The body of the fuzz target `rocm_server`: bytes become what a hostile device writes to a hostcall buffer of a running
//! consumer. Calls over another buffer are answered all the while, no handler panics, and the consumer ends.

use hostcall_channel::rocm::client;
use hostcall_server::rocm::{Consumer, FaultKind, Layout, Mode, Options, PacketMemory, Services, Version};
use hostcall_server::services::Builtins;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "input.rs"]
mod input;

use input::Input;

/// More than a line of phases.
const PACKETS: u32 = 19;

/// A call that has no answer by then gets none.
const HANG: Duration = Duration::from_secs(60);

impl Input<'_> {
    /// Small numbers more often than large ones; descriptors, formats and numbers of functions often.
    fn word(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..0x80 => byte.into(),
            byte @ 0x80..0x90 => {
                let texts: [&[u8; 8]; 16] = [
                    b"%s%d\0\0\0\0",
                    b"%*.*f%s\0",
                    b"%99999d\0",
                    b"%n\0\0\0\0\0\0",
                    b"%s%s%s%s",
                    b"a\0\0\0\0\0\0\0",
                    b"%c%lc\0\0\0",
                    b"%2$s%1$d",
                    b"%p%x%o\0\0",
                    b"\0\0\0\0\0\0\0\0",
                    b"%.1000f\0",
                    b"%-9999s\0",
                    b"line\nabc",
                    b"%hhx%lld",
                    b"%5$d%1$s",
                    b"\xff\xfe%c\0\0\0\0",
                ];
                u64::from_le_bytes(*texts[usize::from(byte & 15)])
            }
            // A descriptor: flags and length, and the number of a message.
            0x90..0xb0 => u64::from(self.byte()) | u64::from(self.byte() & 7) << 8,
            0xb0..0xc0 => self.function + u64::from(self.byte() & 3),
            byte => self.number(byte),
        }
    }
}

/// Services, and what kernels call their function by.
fn services() -> (Services, u64) {
    let services = Services::new();
    let builtins = Builtins::builder()
        .stdout(std::io::sink())
        .stderr(std::io::sink())
        .heap_limit(1 << 20)
        .build()
        .expect("builtins need nothing");
    services.register_printf(&builtins).expect("the number is free");
    services.register_device_heap(&builtins).expect("the number is free");
    services.register_sanitizer(|report| drop(report.to_string())).expect("the number is free");
    let function = services.register_function(|words| [words[0], words[6]]).expect("the number is free");
    let increment = services.register(5, "increment", Mode::Inline, |packet| {
        packet.lanes().for_each(|(_, words)| words[0] = words[0].wrapping_add(1));
    });
    increment.expect("the number is free");
    (services, function)
}

struct Run {
    hostile: Arc<PacketMemory>,
    good: Arc<PacketMemory>,
    consumer: Consumer,
    calls: u64,
}

impl Run {
    /// A word of the hostile buffer, as a device reaches it.
    fn word(&self, index: usize) -> &AtomicU64 {
        let words = self.hostile.layout().bytes() / 8;
        // SAFETY: the buffer has so many aligned words, which are atomics.
        unsafe { &*(self.hostile.device_address() as *const AtomicU64).add(index % words) }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 6 {
            // A word of the root or of the headers.
            0 => self.word(usize::from(input.byte())).store(input.word(), Ordering::Relaxed),
            1 => {
                let index = usize::from(u16::from_le_bytes([input.byte(), input.byte()]));
                self.word(index).store(input.word(), Ordering::Relaxed);
            }
            2 => self.call_good(),
            3 => {
                assert!(self.consumer.deregister(&self.hostile));
                self.consumer.register(&self.hostile).expect("it was deregistered");
            }
            // A packet as a wave would submit it, and perhaps not.
            _ => {
                // What waves find in a hostile buffer may be anything: a claim may fail.
                let Some(packet) = client::claim(self.hostile.packets()) else { return };
                let lanes = input.byte() % 4;
                for lane in 0..lanes {
                    packet.write(lane.into(), &std::array::from_fn(|_| input.word()));
                }
                packet.submit(u32::from(input.byte()) % 8, input.word() | 1);
                let since = Instant::now();
                while !packet.is_answered() && since.elapsed() < Duration::from_micros(300) {
                    std::thread::yield_now();
                }
                if input.byte().is_multiple_of(2) {
                    packet.release();
                }
            }
        }
    }

    /// A call as a good wave makes it.
    fn call_good(&mut self) {
        self.calls += 1;
        let (mut lanes, since) = ([[self.calls; 8]; 3], Instant::now());
        client::call(self.good.packets(), 5, 0b101, &mut lanes, || {
            assert!(since.elapsed() < HANG, "a good call has no answer");
            std::thread::yield_now();
        });
        assert_eq!(lanes.map(|lane| lane[0] - self.calls), [1, 0, 1]);
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let panicked = Arc::new(AtomicBool::new(false));
    let seen = panicked.clone();
    let options = Options::default().message_limit(1 << 12).messages_limit(1 << 14).on_fault(move |fault| {
        let panicked = matches!(fault.kind, FaultKind::Panicked(_) | FaultKind::ServerFailed);
        seen.fetch_or(panicked, Ordering::Relaxed);
        drop(fault.to_string());
    });
    let (services, function) = services();
    input.function = function;
    let consumer = Consumer::new(&services, options).expect("threads start");
    let version = Version::ALL[usize::from(input.byte() % 2)];
    let memory = |packets| {
        let layout = Layout::new(version, packets).expect("the size is good");
        Arc::new(PacketMemory::allocate(layout))
    };
    let mut run = Run { hostile: memory(PACKETS), good: memory(2), consumer, calls: 0 };
    for memory in [&run.hostile, &run.good] {
        run.consumer.register(memory).expect("it is new");
    }
    run.consumer.launch().expect("a thread starts");
    while !input.bytes.is_empty() {
        run.step(&mut input);
    }
    run.call_good();
    drop(run.consumer);
    assert!(!panicked.load(Ordering::Relaxed), "a handler panicked");
}
