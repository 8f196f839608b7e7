//! The functions of raw_waves.c, and a channel's memory for them.

use crate::common::{run, source};
use crate::{FLAGS, temporary, texts_of};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{ForeignRawParams, RAW_STATE_BYTES, RawLayout, RawParams};
use hostcall_channel::raw::{Chunk, Collector, News, RawRegion};
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_void};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Home slots of the channels that threads write to.
pub const HOME_SLOTS: u32 = 3;

#[repr(align(128))]
#[derive(Default)]
struct Line([AtomicU64; 16]);

/// A channel's memory without a device.
pub struct Memory {
    layout: RawLayout,
    shared: Vec<Line>,
    pages: Vec<Line>,
    states: Vec<Line>,
    ring: Line,
}

impl Memory {
    pub fn new(layout: RawLayout) -> Self {
        let lines = |words: usize| (0..words.div_ceil(16)).map(|_| Line::default()).collect();
        let states = lines((HOME_SLOTS as usize + 1) * RAW_STATE_BYTES / 8);
        let (shared, pages) = (lines(layout.words() as usize), lines(layout.data_words() as usize));
        Self { layout, shared, pages, states, ring: Line::default() }
    }

    pub fn region(&self) -> RawRegion<'_> {
        // SAFETY: so many words lie there, at a multiple of 64, and are accessed atomically.
        unsafe {
            RawRegion::from_addresses(self.shared.as_ptr() as u64, self.pages.as_ptr() as u64, self.layout)
        }
    }

    pub fn stream(&self, waits: bool) -> ForeignRawParams {
        let (states, ring) = (self.states.as_ptr() as u64, self.ring.0.as_ptr() as u64);
        let (shared, data) = (self.shared.as_ptr() as u64, self.pages.as_ptr() as u64);
        let params = RawParams { states, ring, shared, data, free: 0, layout: self.layout };
        ForeignRawParams { launch: LaunchId::new(3, 9), ..params.foreign(HOME_SLOTS, waits) }
    }

    pub fn state_word(&self, slot: u32, word: usize) -> Option<u64> {
        let at = slot as usize * RAW_STATE_BYTES / 8 + word;
        Some(self.states.get(at / 16)?.0[at % 16].load(Ordering::Relaxed))
    }

    /// What the host does once the launch is over.
    pub fn sweep(&self, collector: &mut Collector, chunks: &mut VecDeque<Chunk>) -> bool {
        collector.sweep(
            self.region(),
            News::OfAll,
            |_| true,
            |slot, word| self.state_word(slot, word),
            chunks,
        )
    }
}

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Wave = unsafe extern "C" fn(*const ForeignRawParams, u32, u32, u64, c_int) -> u64;

/// The functions of raw_waves.c.
pub struct Waves {
    records: Wave,
    texts: Wave,
    misfits: Wave,
    pub places: unsafe extern "C" fn(*const ForeignRawParams, u64, u32, *mut u64),
}

pub static WAVES: LazyLock<Waves> = LazyLock::new(|| {
    let library = temporary("waves.so");
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-D_DEFAULT_SOURCE", "-O2", "-shared", "-fPIC"]).args(FLAGS);
    command.arg("-I").arg(source("include")).arg(source("tests/c/raw_waves.c"));
    run(command.arg("-o").arg(&library));
    let library = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library is the test's own, stays loaded, and has functions of these types.
    unsafe {
        let library = dlopen(library.as_ptr(), 2);
        assert!(!library.is_null());
        let symbol = |name: &std::ffi::CStr| {
            let symbol = dlsym(library, name.as_ptr());
            assert!(!symbol.is_null(), "{name:?}");
            symbol
        };
        Waves {
            records: std::mem::transmute::<*mut c_void, Wave>(symbol(c"wave_records")),
            texts: std::mem::transmute::<*mut c_void, Wave>(symbol(c"wave_texts")),
            misfits: std::mem::transmute::<*mut c_void, Wave>(symbol(c"wave_misfits")),
            places: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const ForeignRawParams, u64, u32, *mut u64),
            >(symbol(c"places")),
        }
    }
});

#[derive(Clone, Copy, Debug)]
pub enum Work {
    Records,
    Texts,
    /// Records that fit no page.
    Misfits,
}

impl Work {
    pub fn run(self, stream: &ForeignRawParams, workgroup: u32, wave: u32, count: u64, closes: bool) -> u64 {
        let function = match self {
            Work::Records => WAVES.records,
            Work::Texts => WAVES.texts,
            Work::Misfits => WAVES.misfits,
        };
        // SAFETY: the function has this type, and the stream's memory lives.
        unsafe { function(stream, workgroup, wave, count, closes.into()) }
    }

    pub fn expected(self, workgroup: u32, wave: u32, count: u64) -> Vec<u8> {
        match self {
            Work::Records => (0..count)
                .flat_map(|i| [u64::from(workgroup) << 32 | u64::from(wave), i, !i])
                .flat_map(u64::to_le_bytes)
                .collect(),
            Work::Texts => texts_of(wave.into(), count),
            Work::Misfits => Vec::new(),
        }
    }
}
