//! The handlers of the kernels' services.

use conformance::bytes::{byte, hash};
use conformance::services::*;
use hostcall_abi::CallError;
use hostcall_service::{Output, Service};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The handler of [`Echo`].
struct Echoes;

macro_rules! echoes {
    ($($name:ident $n:literal)*) => {$(
        fn $name(&self, values: [u64; $n]) -> Result<[u64; $n], CallError> {
            Ok(values)
        }
    )*};
}

impl EchoHandler for Echoes {
    fn zero(&self) -> Result<(), CallError> {
        Ok(())
    }
    fn one(&self, a: u64) -> Result<u64, CallError> {
        Ok(a)
    }
    fn two(&self, a: u64, b: u64) -> Result<(u64, u64), CallError> {
        Ok((a, b))
    }
    echoes!(three 3 four 4 five 5 six 6 seven 7 eight 8 twenty 20 sixty_four 64);
    fn swallow(&self, _values: [u64; 7]) -> Result<(), CallError> {
        Ok(())
    }
    fn produce(&self) -> Result<[u64; 7], CallError> {
        Ok([u64::MAX, 0, 1, 2, 3, 4, 1 << 63])
    }
}

/// [`Echo`], handled.
pub fn echo() -> impl Service {
    Echo::serve(Echoes)
}

/// The handler of [`Types`].
pub struct AllTypes;

impl TypesHandler for AllTypes {
    fn unsigned(
        &self,
        a: u8,
        b: u16,
        c: u32,
        d: u64,
        e: usize,
    ) -> Result<(u8, u16, u32, u64, usize), CallError> {
        Ok((a, b, c, d, e))
    }
    fn signed(
        &self,
        a: i8,
        b: i16,
        c: i32,
        d: i64,
        e: isize,
    ) -> Result<(i8, i16, i32, i64, isize), CallError> {
        Ok((a, b, c, d, e))
    }
    fn other(&self, a: f32, b: f64, c: bool, d: char) -> Result<(f32, f64, bool, char), CallError> {
        Ok((a, b, c, d))
    }
    fn event(&self, event: Event) -> Result<Event, CallError> {
        Ok(event)
    }
    fn nested(&self, value: Option<(u8, [Point; 2])>) -> Result<Option<(u8, [Point; 2])>, CallError> {
        Ok(value)
    }
    fn lookup(&self, key: u64) -> Result<Result<u64, NotFound>, CallError> {
        Ok(if key.is_multiple_of(2) { Ok(key * 10) } else { Err(NotFound) })
    }
}

/// The handler of [`Meter`]: what was counted and noted. Clones share it.
#[derive(Clone, Default)]
pub struct Noted(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    counters: BTreeMap<u64, u64>,
    /// By key: the values noted, and whether each was the one after the one before.
    noted: BTreeMap<u64, (u64, bool)>,
    /// By number of words: what came.
    sizes: BTreeMap<usize, Vec<Vec<u64>>>,
}

impl Noted {
    /// Forgets all that was noted.
    pub fn forget(&self) {
        *self.0.lock() = Notes::default();
    }

    pub fn counters(&self) -> BTreeMap<u64, u64> {
        self.0.lock().counters.clone()
    }

    /// By key, how many values were noted; fails if they came out of order.
    pub fn noted(&self) -> Result<BTreeMap<u64, u64>, String> {
        let notes = self.0.lock();
        match notes.noted.iter().find(|(_, (_, in_order))| !in_order) {
            Some((key, (count, _))) => Err(format!("{count} posts of lane {key} came out of order")),
            None => Ok(notes.noted.iter().map(|(key, (count, _))| (*key, *count)).collect()),
        }
    }

    /// The posts of so many words, sorted.
    pub fn of_size(&self, words: usize) -> Vec<Vec<u64>> {
        let mut posts = self.0.lock().sizes.get(&words).cloned().unwrap_or_default();
        posts.sort_unstable();
        posts
    }

    fn sized(&self, words: &[u64]) -> Result<(), CallError> {
        self.0.lock().sizes.entry(words.len()).or_default().push(words.to_vec());
        Ok(())
    }
}

impl MeterHandler for Noted {
    fn next(&self, key: u64) -> Result<u64, CallError> {
        let mut notes = self.0.lock();
        let counter = notes.counters.entry(key).or_default();
        *counter += 1;
        Ok(*counter - 1)
    }
    fn note(&self, key: u64, value: u64) -> Result<(), CallError> {
        let mut notes = self.0.lock();
        let (count, in_order) = notes.noted.entry(key).or_insert((0, true));
        *in_order &= *count == value;
        *count += 1;
        Ok(())
    }
    fn noted(&self, key: u64) -> Result<u64, CallError> {
        match self.0.lock().noted.get(&key) {
            Some((_, false)) => Err(CallError::Failed(1)),
            noted => Ok(noted.map_or(0, |(count, _)| *count)),
        }
    }
    fn note0(&self) -> Result<(), CallError> {
        self.sized(&[])
    }
    fn note1(&self, a: u64) -> Result<(), CallError> {
        self.sized(&[a])
    }
    fn note3(&self, values: [u64; 3]) -> Result<(), CallError> {
        self.sized(&values)
    }
    fn note4(&self, values: [u64; 4]) -> Result<(), CallError> {
        self.sized(&values)
    }
    fn note5(&self, values: [u64; 5]) -> Result<(), CallError> {
        self.sized(&values)
    }
    fn note6(&self, values: [u64; 6]) -> Result<(), CallError> {
        self.sized(&values)
    }
    fn note20(&self, values: [u64; 20]) -> Result<(), CallError> {
        self.sized(&values)
    }
}

/// The handler of [`Bytes`].
pub struct Messages;

impl BytesHandler for Messages {
    fn echo(&self, data: &[u8], out: &mut Output<'_>) -> Result<u32, CallError> {
        // In two pieces, as a handler may.
        let (first, second) = data.split_at(data.len() / 3);
        out.push(first)?;
        out.push(second)?;
        Ok(data.len() as u32)
    }
    fn hash(&self, data: &[u8]) -> Result<u64, CallError> {
        Ok(hash(data.iter().copied()))
    }
    fn make(&self, len: u64, seed: u64, out: &mut Output<'_>) -> Result<(), CallError> {
        let bytes: Vec<u8> = (0..len as usize).map(|i| byte(seed, i)).collect();
        out.push(&bytes)
    }
    fn join(
        &self,
        a: u8,
        left: &str,
        b: i64,
        right: &[u8],
        out: &mut Output<'_>,
    ) -> Result<(u8, i64), CallError> {
        out.push(left.as_bytes())?;
        out.push(right)?;
        Ok((a, b))
    }
}

/// The handler of [`Faulty`].
pub struct Faults;

impl FaultyHandler for Faults {
    fn fail(&self, code: i32) -> Result<u64, CallError> {
        Err(CallError::Failed(code))
    }
    fn panic(&self, text: u64) -> Result<(), CallError> {
        // Unwinds past the panic hook, whose output nobody wants here.
        std::panic::resume_unwind(Box::new(text))
    }
    fn slow(&self, ms: u32) -> Result<u32, CallError> {
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(ms)
    }
}

/// The handler of [`Gate`], [`AsyncGate`] and [`Keys`]: gates that are open, and waiting for others. Clones
/// share them. All open when the one is dropped that is nobody's clone, at a case's end: a handler that waits
/// keeps its thread, and the cases that follow want some.
#[derive(Default)]
pub struct Gates {
    shared: Arc<Shared>,
    is_clone: bool,
}

impl Clone for Gates {
    fn clone(&self) -> Gates {
        Gates { shared: self.shared.clone(), is_clone: true }
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        if !self.is_clone {
            self.open_all();
        }
    }
}

#[derive(Default)]
struct Shared {
    passages: Mutex<Passages>,
    /// Notified when calls have come. Apart from `opened`, for which thousands of threads may wait.
    came: Condvar,
    /// Notified when a gate opens.
    opened: Condvar,
}

#[derive(Default)]
struct Passages {
    open: HashSet<u64>,
    all: bool,
    /// Calls of `pass` so far.
    arrived: usize,
    /// Of futures that wait for a gate.
    wakers: Vec<Waker>,
}

impl Passages {
    fn is_open(&self, key: u64) -> bool {
        self.all || self.open.contains(&key)
    }
}

impl Gates {
    pub fn open(&self, key: u64) {
        self.change(|passages| _ = passages.open.insert(key));
    }

    /// Changes what is open, and wakes who waits.
    fn change(&self, change: impl FnOnce(&mut Passages)) {
        let mut passages = self.shared.passages.lock();
        change(&mut passages);
        let wakers = std::mem::take(&mut passages.wakers);
        drop(passages);
        wakers.into_iter().for_each(Waker::wake);
        self.shared.opened.notify_all();
    }

    /// Opens every gate, now and later.
    pub fn open_all(&self) {
        self.change(|passages| passages.all = true);
    }

    fn arrive(&self) {
        self.shared.passages.lock().arrived += 1;
        self.shared.came.notify_all();
    }

    /// Waits until so many calls have come to gates. When they do not come, the gates open, so that the case can
    /// end.
    pub fn wait_for_arrivals(&self, count: usize) -> Result<(), String> {
        let mut passages = self.shared.passages.lock();
        while passages.arrived < count {
            if self.shared.came.wait_for(&mut passages, Duration::from_secs(60)).timed_out() {
                let arrived = passages.arrived;
                drop(passages);
                self.open_all();
                return Err(format!("{arrived} of {count} calls came to the gates"));
            }
        }
        Ok(())
    }
}

impl GateHandler for Gates {
    fn pass(&self, key: u64) -> Result<u64, CallError> {
        self.arrive();
        let mut passages = self.shared.passages.lock();
        while !passages.is_open(key) {
            self.shared.opened.wait(&mut passages);
        }
        Ok(key)
    }
}

impl AsyncGateAsyncHandler for Gates {
    async fn pass(&self, key: u64) -> Result<u64, CallError> {
        self.arrive();
        poll_fn(|context| {
            let mut passages = self.shared.passages.lock();
            if passages.is_open(key) {
                return Poll::Ready(Ok(key));
            }
            passages.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl KeysHandler for Gates {
    fn open(&self, key: u64) -> Result<(), CallError> {
        Gates::open(self, key);
        Ok(())
    }
}

/// The handler of a service that adds one.
pub struct PlusOne;

impl CurrentHandler for PlusOne {
    fn get(&self, key: u64) -> Result<u64, CallError> {
        Ok(key + 1)
    }
}

impl TrustingHandler for PlusOne {
    fn next(&self, value: u64) -> Result<u64, CallError> {
        Ok(value + 1)
    }

    fn note(&self, _: u64) -> Result<(), CallError> {
        Ok(())
    }

    fn len(&self, text: &str) -> Result<u64, CallError> {
        Ok(text.len() as u64)
    }
}

impl NobodyHandler for PlusOne {
    fn call(&self, value: u64) -> Result<u64, CallError> {
        Ok(value + 1)
    }
}
