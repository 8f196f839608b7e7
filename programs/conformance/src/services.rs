//! The services that the kernels call.

use hostcall_device::{Wire, service};

/// Gives back what it gets.
#[service(number = 300)]
pub trait Echo {
    fn zero();
    fn one(a: u64) -> u64;
    fn two(a: u64, b: u64) -> (u64, u64);
    fn three(values: [u64; 3]) -> [u64; 3];
    fn four(values: [u64; 4]) -> [u64; 4];
    fn five(values: [u64; 5]) -> [u64; 5];
    fn six(values: [u64; 6]) -> [u64; 6];
    fn seven(values: [u64; 7]) -> [u64; 7];
    fn eight(values: [u64; 8]) -> [u64; 8];
    fn twenty(values: [u64; 20]) -> [u64; 20];
    fn sixty_four(values: [u64; 64]) -> [u64; 64];
    /// Seven words in, none back.
    fn swallow(values: [u64; 7]);
    /// None in, seven words back.
    fn produce() -> [u64; 7];
}

/// A struct that travels.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
pub struct Point {
    pub x: i32,
    pub y: f32,
}

/// An enum that travels.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
pub enum Event {
    Started,
    Moved { from: Point, to: (u8, i64) },
    Failed(Option<char>),
}

/// The failure of a method's own, which is no failed call.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
pub struct NotFound;

/// Gives back what it gets, of every type.
#[service]
pub trait Types {
    fn unsigned(a: u8, b: u16, c: u32, d: u64, e: usize) -> (u8, u16, u32, u64, usize);
    fn signed(a: i8, b: i16, c: i32, d: i64, e: isize) -> (i8, i16, i32, i64, isize);
    fn other(a: f32, b: f64, c: bool, d: char) -> (f32, f64, bool, char);
    fn event(event: Event) -> Event;
    fn nested(value: Option<(u8, [Point; 2])>) -> Option<(u8, [Point; 2])>;
    /// Ten times an even key.
    fn lookup(key: u64) -> Result<u64, NotFound>;
}

/// Counts, and takes posts.
#[service(number = 400)]
pub trait Meter {
    /// Adds one to counter `key` and returns what it was.
    fn next(key: u64) -> u64;
    /// Notes `value` for `key`.
    fn note(key: u64, value: u64);
    /// How many values were noted for `key`; fails if they were not 0, 1, 2 and so on.
    fn noted(key: u64) -> u64;
    fn note0();
    fn note1(a: u64);
    fn note3(values: [u64; 3]);
    fn note4(values: [u64; 4]);
    fn note5(values: [u64; 5]);
    fn note6(values: [u64; 6]);
    fn note20(values: [u64; 20]);
}

/// Messages of bytes.
#[service]
pub trait Bytes {
    /// Puts `data` in `out`; returns its length.
    fn echo(data: &[u8], out: &mut [u8]) -> u32;
    /// A hash of the data.
    fn hash(data: &[u8]) -> u64;
    /// Puts `len` bytes of the pattern `seed` in `out`.
    fn make(len: u64, seed: u64, out: &mut [u8]);
    /// Two slices and values around them, mixed.
    fn join(a: u8, left: &str, b: i64, right: &[u8], out: &mut [u8]) -> (u8, i64);
}

/// Handlers that fail.
#[service(number = 500)]
pub trait Faulty {
    fn fail(code: i32) -> u64;
    fn panic(text: u64);
    /// Returns after `ms` milliseconds.
    fn slow(ms: u32) -> u32;
}

/// Waits for what others do: its handlers may wait.
#[service(number = 520)]
pub trait Gate {
    /// Returns once `key` was opened.
    fn pass(key: u64) -> u64;
}

/// Waits for what others do, with futures.
#[service(number = 530)]
pub trait AsyncGate {
    /// Returns once `key` was opened.
    fn pass(key: u64) -> u64;
}

/// Opens gates: its handlers never wait.
#[service(number = 540)]
pub trait Keys {
    fn open(key: u64);
}

/// What no server registers.
#[service(number = 600)]
pub trait Nobody {
    fn call(value: u64) -> u64;
}

/// A service as the host has it.
#[service(number = 620)]
pub trait Current {
    fn get(key: u64) -> u64;
}

/// The same service as an old kernel knows it.
pub mod old {
    use hostcall_device::service;

    /// Number and names are those of [`super::Current`], a type is not.
    #[service(number = 620)]
    pub trait Current {
        fn get(key: u32) -> u64;
    }
}

/// Launches another kernel and waits for it.
#[service(number = 640)]
pub trait Launcher {
    fn launch(value: u64) -> u64;
}

/// Trusts its callers.
#[service(number = 650)]
pub trait Trusting {
    /// One more than `value`.
    ///
    /// # Safety
    /// `value` is less than 1000.
    unsafe fn next(value: u64) -> u64;
    /// # Safety
    /// `value` is less than 1000.
    unsafe fn note(value: u64);
    /// Its bytes' count.
    ///
    /// # Safety
    /// `text` is less than 1000 bytes long.
    unsafe fn len(text: &str) -> u64;
}

/// Keeps the books of the stress test: each (lane, sequence) once.
#[service(number = 660)]
pub trait Ledger {
    fn call(lane: u64, sequence: u64, value: u64) -> u64;
    fn note(lane: u64, sequence: u64, value: u64);
}

/// The same on threads that may wait.
#[service(number = 670)]
pub trait SlowLedger {
    fn call(lane: u64, sequence: u64, value: u64) -> u64;
    fn bytes(lane: u64, sequence: u64, data: &[u8], out: &mut [u8]) -> u64;
}

/// Says who calls.
#[service]
pub trait Who {
    fn lane(caller: &Caller, id: u64) -> (u64, u32);
    fn note(caller: &Caller, lane: u32);
    fn named(caller: &Caller, name: &str, out: &mut [u8]) -> u32;
}

/// Says that a lane runs; see [`crate::cancels`].
#[service(number = 680)]
pub trait Arrivals {
    fn arrive(key: u64);
}
