//! One-call objects: a closure that kernels get as an argument.

use crate::device::{Device, IntoArg};
use crate::server::{Handler, Mode, RegisterError};
use hostcall_abi::service::{Method, Reply, Request, Service};
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_device::RemoteCall;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that closures get, in turn.
const NUMBERS: std::ops::Range<u64> = 0x4000..0x8000;

/// The closure takes calls until it is finished.
const CONTINUOUS: u64 = u64::MAX;

/// A closure that kernels call. It takes one call and then no more, unless it is made
/// [`Hostcall::continuous`]. Dropping it finishes it.
///
/// ```
/// use hostcall::hostcall_device::{Global, Lane, RemoteCall, kernel};
/// use hostcall::{Device, Grid, Hostcall, LaunchKernel};
///
/// #[kernel]
/// fn add(lane: &Lane, y: &[Global<f32>], remote: RemoteCall<f32, f32>) {
///     let sum = lane.once_per_workgroup(|| remote.call(y[0].get()).unwrap());
///     y[lane.global_id()].set(sum);
/// }
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let y = device.upload(&[1.0f32])?;
/// let remote = Hostcall::once(&device, |x: f32| x + 42.0)?;
/// add.launch(&stream, Grid::new(1, 1), (&y, &remote))?;
/// stream.synchronize()?;
/// assert_eq!(y.read()?, [43.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hostcall<A: Wire, R: Wire> {
    device: Device,
    number: u16,
    calls_left: Arc<AtomicU64>,
    types: PhantomData<fn(A) -> R>,
}

struct Closure<F, A, R> {
    run: F,
    calls_left: Arc<AtomicU64>,
    method: [Method; 1],
    types: PhantomData<fn(A) -> R>,
}

impl<A, R, F> Service for Closure<F, A, R>
where
    A: Wire + 'static,
    R: Wire + 'static,
    F: Fn(A) -> R + Send + Sync + 'static,
{
    fn methods(&self) -> &[Method] {
        &self.method
    }

    fn call(&self, _method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        let arguments = request.arguments::<A>()?;
        let one_less = |left| match left {
            0 => None,
            CONTINUOUS => Some(CONTINUOUS),
            left => Some(left - 1),
        };
        self.calls_left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less)
            .map_err(|_| CallError::NoSuchService)?;
        let mut words = vec![0; R::WORDS];
        (self.run)(arguments).to_words(&mut words);
        reply.words(&words);
        Ok(())
    }
}

impl<A: Wire + 'static, R: Wire + 'static> Hostcall<A, R> {
    fn new(
        device: &Device,
        calls: u64,
        run: impl Fn(A) -> R + Send + Sync + 'static,
    ) -> Result<Self, RegisterError> {
        let calls_left = Arc::new(AtomicU64::new(calls));
        let run = Arc::new(run);
        let mut taken = None;
        for _ in NUMBERS {
            let number = (NUMBERS.start + device.next_hostcall() % (NUMBERS.end - NUMBERS.start)) as u16;
            let run = run.clone();
            let closure = Closure {
                run: move |arguments| run(arguments),
                calls_left: calls_left.clone(),
                method: [Method { name: "a closure", number, schema: RemoteCall::<A, R>::SCHEMA }],
                types: PhantomData,
            };
            match device.server().register(&Handler::Sync(Arc::new(closure), Mode::Blocking)) {
                Ok(()) => return Ok(Self { device: device.clone(), number, calls_left, types: PhantomData }),
                // An older closure still has the number.
                Err(error) => taken = Some(error),
            }
        }
        Err(taken.expect("every number was tried"))
    }

    /// A closure that takes one call.
    ///
    /// # Errors
    /// When the device has no number left for it: 16,384 closures live.
    pub fn once(
        device: &Device,
        run: impl Fn(A) -> R + Send + Sync + 'static,
    ) -> Result<Self, RegisterError> {
        Self::new(device, 1, run)
    }

    /// A closure that takes calls until [`Hostcall::non_continuous`] or [`Hostcall::finish`].
    ///
    /// # Errors
    /// As for [`Hostcall::once`].
    pub fn continuous(
        device: &Device,
        run: impl Fn(A) -> R + Send + Sync + 'static,
    ) -> Result<Self, RegisterError> {
        Self::new(device, CONTINUOUS, run)
    }

    /// Lets the closure take one more call and then no more.
    pub fn non_continuous(&self) {
        self.calls_left.store(1, Ordering::Release);
    }

    /// Takes no more calls: they end with [`CallError::NoSuchService`]. One that runs already ends.
    pub fn finish(&self) {
        self.calls_left.store(0, Ordering::Release);
    }

    /// Whether the closure takes no more calls.
    pub fn is_finished(&self) -> bool {
        self.calls_left.load(Ordering::Acquire) == 0
    }
}

impl<A: Wire, R: Wire> Drop for Hostcall<A, R> {
    fn drop(&mut self) {
        self.calls_left.store(0, Ordering::Release);
        self.device.server().unregister(self.number);
    }
}

impl<A: Wire, R: Wire> IntoArg<RemoteCall<A, R>> for &Hostcall<A, R> {
    fn raw(&self) -> u64 {
        u64::from(self.number)
    }
}
