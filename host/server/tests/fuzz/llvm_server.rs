//! The body of the fuzz target `llvm_server`: bytes become what hostile clients write to their ports of a running
//! server, which has threads or is polled, and handlers of the embedding program's. Calls over another port are answered all
//! the while, no handler panics, and the server ends.

use hostcall_server::llvm::{
    FaultKind, Layout, LlvmServer, OpcodeHandler, Options, Parameter, Poller, PortMemory, Version,
};
use hostcall_server::rocm::Services;
use hostcall_server::services::{Builtins, ProcessMemory};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

#[path = "input.rs"]
mod input;

use input::Input;

/// More than a line of ports. The last one stays well used.
const PORTS: u32 = 18;
const GOOD: u32 = PORTS - 1;

/// A call that has no answer by then gets none.
const HANG: Duration = Duration::from_secs(20);

/// How long a step waits for the server to hand over a hostile client's port.
const PATIENCE: Duration = Duration::from_micros(300);

static FILES: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

impl Input<'_> {
    /// Small numbers more often than large ones; texts, handles of files and registered functions often.
    fn word(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..0x90 => byte.into(),
            byte @ 0x90..0xa0 => {
                let texts: [&[u8; 8]; 16] = [
                    b"%s%d\0\0\0\0",
                    b"%*.*f%s\0",
                    b"%99999d\0",
                    b"%n\0\0\0\0\0\0",
                    b"%s%s%s%s",
                    b"a\0\0\0\0\0\0\0",
                    b"b\0\0\0\0\0\0\0",
                    b"../a\0\0\0\0",
                    b"r\0\0\0\0\0\0\0",
                    b"w+\0\0\0\0\0\0",
                    b"a+b\0\0\0\0\0",
                    b"r+\0\0\0\0\0\0",
                    b"line\nabc",
                    b"%hhx%lld",
                    b"%5$d%1$s",
                    b"\xff\xfe%c\0\0\0\0",
                ];
                u64::from_le_bytes(*texts[usize::from(byte & 15)])
            }
            byte @ 0xa0..0xb0 => u64::from(byte >> 2 & 3) << 32 | (u64::from(byte & 3) + 1) << 2,
            // Keys of Emissary's arguments, their number and bytes, and what calls are of.
            0xb8..0xc0 => {
                let pairs = [
                    [2 << 16 | 64, 3 << 16 | 1],
                    [2 << 16 | 64, 2 << 16 | 32],
                    [3 << 16 | 1, 1 << 16 | 64],
                    [3 << 16 | 64, 2 << 16 | 64],
                    [u32::from(self.byte()), u32::from(self.byte() & 7)],
                    [0, 2 << 16 | 1],
                    [0, 3 << 16 | 1],
                    [1 << 16 | 1, 3 << 16 | 2],
                ];
                let [low, high] = pairs[usize::from(self.byte() & 7)];
                u64::from(low) | u64::from(high) << 32
            }
            0xb0..0xb8 => self.function + u64::from(self.byte() & 3),
            byte => self.number(byte),
        }
    }
}

/// The first opcode of the embedding program's.
fn ours(version: Version) -> u32 {
    if version == Version::Llvm19 { 0x4000 } else { 0x7800_0000 }
}

/// Registers a handler of each kind.
fn handlers(server: &LlvmServer, first: u32) -> Result<(), hostcall_server::llvm::Taken> {
    let echo = OpcodeHandler::call(|call| {
        call.receive_bytes()?;
        call.send_bytes()?;
        call.receive()?;
        call.receive()?;
        Ok(call.send()?)
    });
    server.handle(first..=first + 3, echo)?;
    let typed = OpcodeHandler::call(|call| {
        let parameters = [Parameter::Value(4), Parameter::Input, Parameter::Pointer, Parameter::Value(70)];
        call.dispatch(&parameters, 72, |_, arguments, result| {
            result[0] = arguments.len() as u8;
            Ok(())
        })
    });
    server.handle(first + 4..=first + 5, typed)?;
    let nothing = OpcodeHandler::call(|call| call.dispatch(&[], 0, |_, _, _| Ok(())));
    server.handle(first + 6..=first + 6, nothing)?;
    let change = |packet: &mut hostcall_server::llvm::Packet<'_>| {
        packet.lanes().for_each(|(_, words)| words.reverse());
        Ok(())
    };
    server.handle(first + 7..=first + 8, OpcodeHandler::packet(change))?;
    server.handle(first + 9..=first + 10, OpcodeHandler::inline(change))?;
    server.handle_emissary(3, |call| {
        call.memory.iter_mut().for_each(|memory| memory.reverse());
        Ok(call.arguments.len() as u64)
    })
}

struct Run {
    memory: Arc<PortMemory>,
    layout: Layout,
    server: LlvmServer,
    poller: Option<RefCell<Poller>>,
    panicked: Arc<AtomicBool>,
    calls: u64,
}

impl Run {
    fn new(input: &mut Input<'_>) -> Self {
        let shape = input.byte();
        let version = Version::ALL[usize::from(shape % 3)];
        let lanes = [1, 32, 64][usize::from(shape / 3 % 3)];
        let layout = Layout::new(version, PORTS, lanes).expect("the sizes are good");
        let memory = Arc::new(PortMemory::allocate(layout));
        let builtins = Builtins::builder()
            .dir(FILES.path())
            .stdin(&b"some\ninput"[..])
            .stdout(std::io::sink())
            .stderr(std::io::sink())
            .heap(ProcessMemory, 1 << 20)
            .build()
            .expect("the folder exists");
        let panicked = Arc::new(AtomicBool::new(false));
        let seen = panicked.clone();
        let options =
            Options::default().message_limit(1 << 16).messages_limit(1 << 18).on_fault(move |fault| {
                seen.fetch_or(fault.kind == FaultKind::Panicked, Ordering::Relaxed);
            });
        let options = if shape / 18 % 2 == 1 { options.answer_faults(|_| ()) } else { options };
        let (server, poller) = if (shape / 9).is_multiple_of(2) {
            (LlvmServer::start(memory.clone(), &builtins, options).expect("threads start"), None)
        } else {
            let (server, poller) =
                LlvmServer::by_hand(memory.clone(), &builtins, options).expect("threads start");
            (server, Some(RefCell::new(poller)))
        };
        handlers(&server, ours(version)).expect("the opcodes are free");
        input.function = server.register(|bytes| bytes.len() as u64);
        let services = Services::new();
        services.register_printf(&builtins).expect("the number is free");
        services.register_device_heap(&builtins).expect("the number is free");
        services.register_sanitizer(|_| ()).expect("the number is free");
        services.register_function(|[x, ..]| [*x, 0]).expect("the number is free");
        server.handle_rocm(&services).expect("the opcodes are free");
        Self { memory, layout, server, poller, panicked, calls: 0 }
    }

    /// A word of the memory, as a device reaches it.
    fn word<T>(&self, place: usize) -> &T {
        assert!(place + size_of::<T>() <= self.layout.bytes() && place.is_multiple_of(size_of::<T>()));
        let object = self.memory.client_object();
        let inbox = self.layout.version().inbox_pointer_offset();
        let inbox = u64::from_le_bytes(object[inbox..inbox + 8].try_into().expect("8 bytes"));
        let start = inbox as usize - self.layout.primary();
        // SAFETY: the place is in the memory and aligned; `T` is an atomic number.
        unsafe { &*((start + place) as *const T) }
    }

    fn inbox(&self, port: u32) -> &AtomicU32 {
        self.word(self.layout.primary() + 4 * port as usize)
    }

    fn outbox(&self, port: u32) -> &AtomicU32 {
        self.word(self.layout.secondary() + 4 * port as usize)
    }

    fn header(&self, port: u32, word: usize) -> &AtomicU64 {
        self.word(self.layout.headers() + 16 * port as usize + 8 * word)
    }

    fn buffer(&self, port: u32, lane: u32, word: usize) -> &AtomicU64 {
        let buffer = (port * self.layout.lanes() + lane) as usize;
        self.word(self.layout.buffers() + 64 * buffer + 8 * word)
    }

    /// Waits until a client owns the port, at most so long.
    fn owns(&self, port: u32, patience: Duration) -> bool {
        let since = Instant::now();
        while self.inbox(port).load(Ordering::Relaxed) != self.outbox(port).load(Ordering::Relaxed) {
            if let Some(poller) = &self.poller {
                poller.borrow_mut().poll();
            }
            if since.elapsed() > patience {
                return false;
            }
            std::thread::yield_now();
        }
        fence(Ordering::Acquire);
        true
    }

    fn hand_over(&self, port: u32) {
        fence(Ordering::Release);
        self.outbox(port).fetch_xor(1, Ordering::Relaxed);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let step = input.byte();
        let port = u32::from(input.byte()) % GOOD;
        let lane = u32::from(input.byte()) % self.layout.lanes();
        match step % 8 {
            0 => self.outbox(port).store(input.word() as u32, Ordering::Relaxed),
            1 => self.inbox(port).store(input.word() as u32, Ordering::Relaxed),
            2 => self.header(port, usize::from(input.byte() & 1)).store(input.word(), Ordering::Relaxed),
            3 => {
                for word in 0..8 {
                    self.buffer(port, lane, word).store(input.word(), Ordering::Relaxed);
                }
            }
            4 => self.well_used(),
            // Opens a port as a client would.
            5 => {
                if self.owns(port, PATIENCE) {
                    let all = u64::MAX >> (64 - self.layout.lanes());
                    self.header(port, 0).store((input.word() & all).max(1), Ordering::Relaxed);
                    let version = self.layout.version();
                    let base = if version == Version::Llvm19 { 0 } else { 0x6300_0000 };
                    let opcode = match input.byte() {
                        test @ 0xf0.. => base | 0x8000 | u64::from(test & 3),
                        own @ 0xd8.. => u64::from(ours(version)) + u64::from(own & 15),
                        rocm @ 0xcc..0xd0 => 0x7200_0000 + u64::from(rocm & 3),
                        emissary @ 0xd0.. => 0x6500_0001 + u64::from(emissary & 1),
                        number => base | u64::from(number % 31),
                    };
                    self.header(port, 1).store(opcode, Ordering::Relaxed);
                    self.send(port, input);
                }
            }
            // Goes on with what it began.
            _ => {
                if self.owns(port, PATIENCE) {
                    self.send(port, input);
                }
            }
        }
    }

    fn send(&self, port: u32, input: &mut Input<'_>) {
        let words: [u64; 3] = std::array::from_fn(|_| input.word());
        for lane in 0..self.layout.lanes() {
            for (i, word) in words.into_iter().enumerate() {
                self.buffer(port, lane, i).store(word, Ordering::Relaxed);
            }
        }
        self.hand_over(port);
    }

    /// A call as a good client makes it.
    fn well_used(&mut self) {
        self.calls += 1;
        let base = if self.layout.version() == Version::Llvm19 { 0 } else { 0x6300_0000 };
        self.header(GOOD, 0).store(1, Ordering::Relaxed);
        self.header(GOOD, 1).store(base | 0x8001, Ordering::Relaxed);
        self.buffer(GOOD, 0, 0).store(self.calls, Ordering::Relaxed);
        self.hand_over(GOOD);
        assert!(self.owns(GOOD, HANG), "a good call has no answer");
        assert_eq!(self.buffer(GOOD, 0, 0).load(Ordering::Relaxed), self.calls + 1);
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut run = Run::new(&mut input);
    while !input.bytes.is_empty() {
        run.step(&mut input);
    }
    run.well_used();
    let Run { server, poller, panicked, .. } = run;
    drop(poller);
    drop(server);
    assert!(!panicked.load(Ordering::Relaxed), "a handler panicked");
}
