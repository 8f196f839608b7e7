//! Lines that are much longer than their formats take memory one after the other.

use hostcall_server::llvm::{Layout, LlvmServer, Options, PortMemory, Version};
use hostcall_server::services::Builtins;
use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are allocated now, and most that ever were.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        let held = HELD.fetch_add(block.size(), Ordering::SeqCst) + block.size();
        MOST.fetch_max(held, Ordering::SeqCst);
        // SAFETY: by the caller's promise.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, block: Block) {
        HELD.fetch_sub(block.size(), Ordering::SeqCst);
        // SAFETY: by the caller's promise.
        unsafe { System.dealloc(memory, block) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A call that has no answer by then gets none.
const HANG: Duration = Duration::from_secs(30);

/// A client of one port, whose lanes all send the same.
struct Client {
    _memory: Arc<PortMemory>,
    layout: Layout,
    start: usize,
}

impl Client {
    fn new(memory: &Arc<PortMemory>, layout: Layout) -> Self {
        let object = memory.client_object();
        let at = layout.version().inbox_pointer_offset();
        let inbox = u64::from_le_bytes(object[at..at + 8].try_into().unwrap()) as usize;
        Self { _memory: memory.clone(), layout, start: inbox - layout.primary() }
    }

    fn mailbox(&self, at: usize) -> &AtomicU32 {
        let word = std::ptr::with_exposed_provenance::<AtomicU32>(self.start + at);
        // SAFETY: `_memory` has the word, which everybody accesses as an atomic.
        unsafe { &*word }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        let word = std::ptr::with_exposed_provenance::<AtomicU64>(self.start + at);
        // SAFETY: as above.
        unsafe { &*word }
    }

    fn begin(&self, opcode: u64) {
        self.word(self.layout.headers()).store(!0, Ordering::Relaxed);
        self.word(self.layout.headers() + 8).store(opcode, Ordering::Relaxed);
    }

    /// Sends words of each lane, and returns each lane's first word of the answer.
    fn turn(&self, words: &[u64]) -> Vec<u64> {
        let buffer = |lane: usize, index: usize| self.word(self.layout.buffers() + 64 * lane + 8 * index);
        for lane in 0..64 {
            for (index, word) in words.iter().enumerate() {
                buffer(lane, index).store(*word, Ordering::Relaxed);
            }
        }
        self.mailbox(self.layout.secondary()).fetch_xor(1, Ordering::SeqCst);
        let mailbox = |at| self.mailbox(at).load(Ordering::SeqCst);
        let since = Instant::now();
        while mailbox(self.layout.primary()) != mailbox(self.layout.secondary()) {
            assert!(since.elapsed() < HANG, "there is no answer");
            std::thread::yield_now();
        }
        (0..64).map(|lane| buffer(lane, 0).load(Ordering::Relaxed)).collect()
    }
}

#[test]
fn long_lines_take_memory_one_after_the_other() {
    const LINE_BYTES: usize = 1_000_000;
    const FPRINTF: u64 = 0x6300_0000 | 23;
    const STDOUT: u64 = 2;
    const NO_STREAM: u64 = 0x100;
    let layout = Layout::new(Version::Llvm20, 4, 64).unwrap();
    let builtins = Builtins::builder().stdout(std::io::sink()).build().unwrap();
    let options = |limit| Options::default().messages_limit(limit).message_limit(1 << 16);
    let mut format = [0; 16];
    format[..9].copy_from_slice(b"%1000000d");
    let [first, second] = [0, 8].map(|at| u64::from_le_bytes(format[at..at + 8].try_into().unwrap()));
    for (limit, stream, result) in [
        (64 << 20, NO_STREAM, u64::MAX),
        (64 << 20, STDOUT, LINE_BYTES as u64),
        // A line is counted as a message is.
        (LINE_BYTES / 2, STDOUT, u64::MAX),
    ] {
        let memory = Arc::new(PortMemory::allocate(layout));
        let server = LlvmServer::start(memory.clone(), &builtins, options(limit)).unwrap();
        let client = Client::new(&memory, layout);
        MOST.store(HELD.load(Ordering::SeqCst), Ordering::SeqCst);
        let before = MOST.load(Ordering::SeqCst);
        client.begin(FPRINTF);
        client.turn(&[stream]);
        let block_bytes = client.turn(&[10, first, second])[0];
        assert_eq!(client.turn(&[block_bytes, 7]), [result; 64]);
        let most = MOST.load(Ordering::SeqCst) - before;
        // The output's queue has some megabytes.
        assert!(most < 32 * LINE_BYTES, "{most} bytes for lines to the stream {stream}");
        drop(server);
    }
}
