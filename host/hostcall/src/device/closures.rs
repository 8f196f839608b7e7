//! Closures that kernels get as arguments.

use super::arguments::{IntoArg, Packer, Sealed};
use super::closure_table::Closures;
use super::error::{Error, HostcallState, NotContinuous};
use super::inner::Device;
use hostcall_abi::schema;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_device::HostcallRef;
use hostcall_locks::Mutex;
use hostcall_server::RegisterError;
use hostcall_service::Reply;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A closure that kernels call. A kernel has a parameter of the type [`HostcallRef`] for it.
///
/// [`HostcallState`] says which calls it takes. A launch keeps the closures that it got: when the `Hostcall` is dropped,
/// the closure takes calls of such launches until the last of them has ended, and is then dropped itself. Calls run on
/// the server's worker threads, several at once. A device has as many closures as there is memory for.
///
/// ```
/// use hostcall::{Device, Global, Grid, Hostcall, HostcallRef, Lane, LaunchKernel, kernel};
///
/// #[kernel]
/// fn add(lane: &Lane, y: &[Global<f32>], add: HostcallRef<f32, f32>) {
///     let sum = lane.once_per_workgroup(|| add.call(y[0].get()).unwrap());
///     y[lane.global_id()].set(sum);
/// }
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let y = device.upload(&[1.0f32])?;
/// let closure = Hostcall::once(&device, |x: f32| x + 42.0)?;
/// add.launch(&stream, Grid::new(1, 1), (&y, &closure))?;
/// stream.synchronize()?;
/// assert_eq!(y.read()?, [43.0]);
/// assert!(closure.is_finished());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hostcall<A: Wire, R: Wire> {
    device: Device,
    registered: Arc<Registered>,
    types: PhantomData<fn(A) -> R>,
}

/// A closure's place in the table of its device, which it leaves when this is dropped.
struct Registered {
    id: u64,
    state: Arc<Mutex<HostcallState>>,
    closures: Closures,
}

impl Drop for Registered {
    fn drop(&mut self) {
        *self.state.lock() = HostcallState::Finished;
        // The closure is dropped after the table is unlocked, since it may do anything.
        let removed = self.closures.table.write().remove(&self.id);
        drop(removed);
    }
}

impl Registered {
    /// Enters a closure. `read` makes a call's words arguments, which are `None` for a call that is none, and `answer` writes
    /// the words of its result, of which there are so many.
    fn new<A: 'static>(
        device: &Device,
        state: HostcallState,
        result_words: usize,
        read: impl Fn(&[u64]) -> Option<A> + Send + Sync + 'static,
        answer: impl Fn(A, &mut [u64]) + Send + Sync + 'static,
    ) -> Result<Arc<Self>, RegisterError> {
        /// The next closure's id, which none has had before it in this process: what a kernel remembers of a closure
        /// that is gone never means another one.
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(Mutex::new(state));
        let run = {
            let state = state.clone();
            move |words: &[u64], reply: &mut dyn Reply| {
                let arguments = read(words).ok_or(CallError::Malformed)?;
                {
                    let mut state = state.lock();
                    *state = state.after_call().ok_or(CallError::NoSuchService)?;
                }
                let mut words = vec![0; result_words];
                answer(arguments, &mut words);
                reply.words(&words);
                Ok(())
            }
        };
        let closures = device.inner.closures()?;
        closures.table.write().insert(id, Arc::new(run));
        Ok(Arc::new(Self { id, state, closures }))
    }

    fn state(&self) -> HostcallState {
        *self.state.lock()
    }

    /// Takes no more calls. Returns whether it still took some before.
    fn finish(&self) -> bool {
        let mut state = self.state.lock();
        std::mem::replace(&mut *state, HostcallState::Finished) != HostcallState::Finished
    }

    /// Enters the closure as the argument of a launch, and returns what lies in the argument block.
    fn pack(self: &Arc<Self>, device: &Device, packer: &mut Packer<'_>) -> Result<u64, Error> {
        packer.check_device(&device.inner.core)?;
        packer.check_closure(self.state())?;
        packer.keep(self.clone());
        Ok(self.id)
    }
}

impl<A: Wire + 'static, R: Wire + 'static> Hostcall<A, R> {
    fn new(
        device: &Device,
        state: HostcallState,
        closure: impl Fn(A) -> R + Send + Sync + 'static,
    ) -> Result<Self, RegisterError> {
        let read = |words: &[u64]| if words.len() == A::WORDS { A::from_words(words) } else { None };
        let answer = move |arguments: A, words: &mut [u64]| closure(arguments).to_words(words);
        let registered = Registered::new(device, state, R::WORDS, read, answer)?;
        Ok(Self { device: device.clone(), registered, types: PhantomData })
    }

    /// Makes a closure that takes one call.
    ///
    /// # Errors
    /// When somebody else has registered a service by the number of the closures' service.
    pub fn once(
        device: &Device,
        closure: impl Fn(A) -> R + Send + Sync + 'static,
    ) -> Result<Self, RegisterError> {
        Self::new(device, HostcallState::Once, closure)
    }

    /// Makes a closure that takes calls until [`Hostcall::non_continuous`] or [`Hostcall::finish`].
    ///
    /// # Errors
    /// As for [`Hostcall::once`].
    pub fn continuous(
        device: &Device,
        closure: impl Fn(A) -> R + Send + Sync + 'static,
    ) -> Result<Self, RegisterError> {
        Self::new(device, HostcallState::Continuous, closure)
    }
}

impl<A: Wire, R: Wire> Hostcall<A, R> {
    /// Returns the device whose kernels call the closure.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns which calls the closure takes at this moment.
    pub fn state(&self) -> HostcallState {
        self.registered.state()
    }

    /// Lets a continuous closure take one more call and then no more.
    ///
    /// # Errors
    /// When the closure is not continuous: a spent one is not revived.
    pub fn non_continuous(&self) -> Result<(), NotContinuous> {
        let mut state = self.registered.state.lock();
        if *state != HostcallState::Continuous {
            return Err(NotContinuous { state: *state });
        }
        *state = HostcallState::LastCall;
        Ok(())
    }

    /// Takes no more calls: they end with [`CallError::NoSuchService`]. Calls that run already end as ever. Returns
    /// whether the closure still took calls before.
    pub fn finish(&self) -> bool {
        self.registered.finish()
    }

    /// Returns whether the closure takes no more calls.
    pub fn is_finished(&self) -> bool {
        self.state() == HostcallState::Finished
    }
}

impl<A: Wire + 'static, R: Wire + 'static> Sealed<HostcallRef<A, R>> for &Hostcall<A, R> {}

impl<A: Wire + 'static, R: Wire + 'static> IntoArg<HostcallRef<A, R>> for &Hostcall<A, R> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<u64, Error> {
        self.registered.pack(&self.device, packer)
    }
}

/// How many words a type of Rust's has, and whether words are a value of it.
type WirePart = (usize, fn(&[u64]) -> bool);

/// A type of values that travel as words.
#[derive(Clone, Debug)]
pub struct WireType {
    schema: u64,
    words: usize,
    /// The types of Rust's that it consists of.
    parts: Vec<WirePart>,
}

impl WireType {
    /// The type `T`.
    pub fn of<T: Wire>() -> Self {
        let part: WirePart = (T::WORDS, |words| T::from_words(words).is_some());
        Self { schema: T::SCHEMA, words: T::WORDS, parts: vec![part] }
    }

    /// The tuple of these types.
    pub fn tuple(types: &[Self]) -> Self {
        let add = |hash, one: &Self| schema::add_hash(hash, one.schema);
        let words = types.iter().map(|one| one.words).sum();
        let parts = types.iter().flat_map(|one| one.parts.iter().copied()).collect();
        Self { schema: types.iter().fold(schema::of("tuple"), add), words, parts }
    }

    /// Says whether words are a value of the type.
    fn has(&self, mut words: &[u64]) -> bool {
        let has_part = |(count, are_value): &WirePart| {
            let Some((part, rest)) = words.split_at_checked(*count) else { return false };
            words = rest;
            are_value(part)
        };
        self.parts.iter().all(has_part) && words.is_empty()
    }
}

/// A closure whose types are known when the program runs: what hosts in other languages have for a [`Hostcall`].
pub struct UntypedHostcall {
    device: Device,
    registered: Arc<Registered>,
    schema: u64,
}

impl UntypedHostcall {
    /// Makes a closure for a kernel's `HostcallRef<A, R>`, in the state `state`. It gets the words of its arguments, which are
    /// values of their types, and a result's words, which are zeros.
    ///
    /// # Errors
    /// As for [`Hostcall::once`].
    pub fn new(
        device: &Device,
        state: HostcallState,
        arguments: WireType,
        result: WireType,
        closure: impl Fn(&[u64], &mut [u64]) + Send + Sync + 'static,
    ) -> Result<Self, RegisterError> {
        let schema = schema::add_hash(schema::of("hostcall"), arguments.schema);
        let read = move |words: &[u64]| arguments.has(words).then(|| words.to_vec());
        let answer = move |words: Vec<u64>, result: &mut [u64]| closure(&words, result);
        let registered = Registered::new(device, state, result.words, read, answer)?;
        Ok(Self { device: device.clone(), registered, schema: schema::add_hash(schema, result.schema) })
    }

    /// Does what [`Hostcall::finish`] does.
    pub fn finish(&self) -> bool {
        self.registered.finish()
    }

    /// Returns which calls the closure takes at this moment.
    pub fn state(&self) -> HostcallState {
        self.registered.state()
    }

    /// Hash of the kernel's parameter that the closure is for.
    pub(crate) fn schema(&self) -> u64 {
        self.schema
    }

    pub(crate) fn pack(&self, packer: &mut Packer<'_>) -> Result<u64, Error> {
        self.registered.pack(&self.device, packer)
    }
}

impl fmt::Debug for UntypedHostcall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedHostcall").field("state", &self.state()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_service::{Request, Service};

    struct Words(Vec<u64>);

    impl Reply for Words {
        fn words(&mut self, words: &[u64]) {
            self.0 = words.to_vec();
        }
        fn bytes(&mut self, _bytes: &[u8]) -> Result<(), CallError> {
            Ok(())
        }
    }

    fn call(closures: &Closures, words: &[u64]) -> Result<Vec<u64>, CallError> {
        let mut reply = Words(Vec::new());
        let request = Request { words, bytes: &[], reply_capacity: 0, caller: Default::default() };
        closures.call(0, request, &mut reply).map(|()| reply.0)
    }

    #[test]
    fn closures_take_the_calls_that_their_state_allows() {
        use HostcallState::{Continuous, Finished, LastCall, Once};
        let device = Device::open("cpu").unwrap();
        let add = |x: u64| x + 1;
        let closures = device.inner.closures().unwrap();
        let refused = |state| Err(NotContinuous { state });

        let once = Hostcall::once(&device, add).unwrap();
        let id = once.registered.id;
        assert_eq!((once.state(), once.non_continuous()), (Once, refused(Once)));
        assert_eq!(call(&closures, &[id]), Err(CallError::Malformed));
        assert_eq!(once.state(), Once, "a call that is none is not counted");
        assert_eq!(call(&closures, &[id, 1]), Ok(vec![2]));
        assert_eq!(call(&closures, &[id, 1]), Err(CallError::NoSuchService));
        assert_eq!((once.non_continuous(), once.state()), (refused(Finished), Finished));
        assert!(!once.finish());

        let continuous = Hostcall::continuous(&device, add).unwrap();
        let id = continuous.registered.id;
        for i in 0..3 {
            assert_eq!(call(&closures, &[id, i]), Ok(vec![i + 1]));
        }
        assert_eq!((continuous.non_continuous(), continuous.state()), (Ok(()), LastCall));
        assert_eq!(continuous.non_continuous(), refused(LastCall));
        assert_eq!(call(&closures, &[id, 5]), Ok(vec![6]));
        assert!(continuous.is_finished());
        assert_eq!(call(&closures, &[id, 5]), Err(CallError::NoSuchService));

        let finished = Hostcall::continuous(&device, add).unwrap();
        assert_eq!((finished.state(), finished.finish(), finished.state()), (Continuous, true, Finished));
        assert_eq!(finished.non_continuous(), refused(Finished));
    }

    #[test]
    fn closures_without_types_get_values_of_their_types_alone() {
        let device = Device::open("cpu").unwrap();
        let closures = device.inner.closures().unwrap();
        let arguments = WireType::tuple(&[WireType::of::<bool>(), WireType::of::<u8>()]);
        let add = |words: &[u64], result: &mut [u64]| result[0] = words[0] + words[1];
        let closure =
            UntypedHostcall::new(&device, HostcallState::Continuous, arguments, WireType::of::<u64>(), add);
        let closure = closure.unwrap();
        let id = closure.registered.id;
        assert_eq!(call(&closures, &[id, 1, 255]), Ok(vec![256]));
        for words in [&[id, 2, 0][..], &[id, 1, 256], &[id, 1], &[id, 1, 1, 1]] {
            assert_eq!(call(&closures, words), Err(CallError::Malformed), "{words:?}");
        }
    }

    #[test]
    fn a_closure_that_is_gone_is_no_other_one() {
        let device = Device::open("cpu").unwrap();
        let other_device = Device::open("cpu").unwrap();
        let first = Hostcall::continuous(&device, |x: u64| x).unwrap();
        let id = first.registered.id;
        let kept = first.registered.clone();
        drop(first);
        let _second = Hostcall::continuous(&device, |x: u64| x + 1).unwrap();
        let closures = device.inner.closures().unwrap();
        assert_eq!(call(&closures, &[id, 7]), Ok(vec![7]), "a launch keeps it");
        drop(kept);
        assert_eq!(call(&closures, &[id, 7]), Err(CallError::NoSuchService));

        let foreign = Hostcall::continuous(&other_device, |x: u64| x).unwrap();
        assert_eq!(call(&closures, &[foreign.registered.id, 7]), Err(CallError::NoSuchService));
    }

    #[test]
    fn there_may_be_more_closures_than_numbers() {
        let device = Device::open("cpu").unwrap();
        let closures: Vec<_> =
            (0..100_000u64).map(|i| Hostcall::once(&device, move |x: u64| x + i).unwrap()).collect();
        let table = device.inner.closures().unwrap();
        assert_eq!(call(&table, &[closures[99_999].registered.id, 1]), Ok(vec![100_000]));
        drop(closures);
        assert!(table.table.read().is_empty());
    }
}
