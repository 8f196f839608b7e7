//! How a function is called, and what its call's lane gets for what it returns or raises.

use crate::errors::Errors;
use crate::service::{Function, PostTask, Served};
use hostcall::CallError;
use hostcall::server::{DeferredCall, DeferredPost, WavePlace};
use hostcall_abi::launch::LaunchId;
use hostcall_service::Caller;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub type PlaceOf = Arc<dyn Fn(Caller) -> (Arc<str>, Option<WavePlace>) + Send + Sync>;
/// Says to whom is told what went wrong in a launch: its context, where it has one, else itself.
pub type ContextOf = Arc<dyn Fn(LaunchId) -> LaunchId + Send + Sync>;

thread_local! {
    /// Who calls, and whether it is a post: its wave may have ended, and another one have its slot.
    static CALLER: Cell<Option<(Caller, bool)>> = const { Cell::new(None) };
    static PLACE_OF: RefCell<Option<PlaceOf>> = const { RefCell::new(None) };
}

/// Who calls the function that this thread runs.
pub type Place = (String, Option<([u32; 3], u32)>, u8);

/// Has [`caller`] know where callers are, on this thread.
pub fn enter(place_of: PlaceOf) {
    PLACE_OF.set(Some(place_of));
}

/// Returns who calls: the kernel's or context's name, block and wave, and the lane in its wave.
pub fn caller() -> Option<Place> {
    let (caller, is_post) = CALLER.get()?;
    let (kernel, place) = PLACE_OF.with_borrow(|of| of.as_ref().map(|of| of(caller)))?;
    let place = place.filter(|_| !is_post).map(|place| (place.workgroup, place.wave));
    Some((kernel.to_string(), place, caller.lane))
}

/// A call or a post. Who has it answers it, or refuses it.
#[expect(
    clippy::large_enum_variant,
    reason = "most are calls, and a box for each would take longer than a move"
)]
pub enum Work {
    Call(DeferredCall),
    Post(DeferredPost),
}

impl Work {
    pub fn caller(&self) -> Caller {
        match self {
            Self::Call(call) => call.caller(),
            Self::Post(post) => post.caller(),
        }
    }

    /// Says that its function is called now, and gives its words, bytes and the most bytes of the reply to `begun`. `None` if
    /// nobody waits for it.
    fn begin<T>(&mut self, begun: impl FnOnce(&[u64], &[u8], usize) -> T) -> Option<T> {
        match self {
            Self::Call(call) => {
                let request = call.begin()?;
                Some(begun(request.words, request.bytes, request.reply_capacity))
            }
            Self::Post(post) => Some(begun(post.words(), &[], 0)),
        }
    }

    fn answer(self, words: &[u64], bytes: &[u8]) {
        if let Self::Call(call) = self {
            call.answer(words, bytes);
        }
    }

    fn fail(self, error: CallError) {
        match self {
            Self::Call(call) => call.fail(error),
            Self::Post(post) => post.refuse(),
        }
    }
}

/// What calls of all functions of a device have in common.
pub struct Handling {
    pub errors: Arc<Errors>,
    pub place_of: PlaceOf,
    pub context_of: ContextOf,
    /// The exception by which a function refuses a call.
    pub refuse: Py<PyAny>,
    /// Has coroutines run, each with the [`Reply`] that gets its task.
    pub submit: Py<PyAny>,
}

impl Handling {
    /// Keeps an exception, with a note that says where its call came from.
    fn keep(&self, py: Python<'_>, function: &Function, work: &Work, error: PyErr, count: u64, ends: &str) {
        let (caller, is_post) = (work.caller(), matches!(work, Work::Post(_)));
        let told_to = (self.context_of)(caller.launch);
        if self.errors.wants(told_to) {
            let (kernel, place) = (self.place_of)(caller);
            let place = place
                .filter(|_| !is_post)
                .map_or_else(String::new, |WavePlace { workgroup: [x, y, z], wave }| {
                    format!(", block ({x}, {y}, {z}), wave {wave}")
                });
            let name = function.name;
            let lanes = match count {
                1 => format!("lane {}", caller.lane),
                count => format!("lane {} and {} more in the same batch", caller.lane, count - 1),
            };
            let note = format!("raised for {name}, called by `{kernel}`{place}, {lanes}: {ends}");
            // An exception that takes no note is kept without one.
            let _ = add_note(error.value(py), &note);
        }
        self.errors.keep(told_to, error, count);
    }

    /// Returns the code with which a function refuses, if that is what it raised.
    fn refusal(&self, py: Python<'_>, error: &PyErr) -> Option<i32> {
        let is_refusal = error.is_instance(py, self.refuse.bind(py));
        is_refusal.then(|| error.value(py).getattr("code").and_then(|code| code.extract()).unwrap_or(-1))
    }

    /// Ends a call whose function raised.
    fn failed(&self, py: Python<'_>, function: &Function, work: Work, error: PyErr) {
        if let Some(code) = self.refusal(py, &error) {
            return work.fail(CallError::Failed(code));
        }
        self.keep(py, function, &work, error, 1, ends(&work));
        work.fail(CallError::Panicked);
    }

    /// Ends a call whose words are no arguments of the function.
    fn malformed(&self, py: Python<'_>, function: &Function, work: Work, words: usize, bytes: usize) {
        let (name, expects) = (function.name, function.signature.expects());
        let error = PyTypeError::new_err(format!(
            "{name} takes {expects}, and the kernel sent {words} words and {bytes} bytes that are none: have both sides agree \
             on the types (bytes and str are a word with the length, and the bytes)"
        ));
        self.keep(py, function, &work, error, 1, "the lane got the status MALFORMED");
        work.fail(CallError::Malformed);
    }

    /// Returns the arguments of a call, or ends it.
    fn arguments<'py>(
        &self,
        py: Python<'py>,
        function: &Function,
        mut work: Work,
    ) -> Option<(Work, Bound<'py, PyTuple>, usize)> {
        let (arguments, sizes, capacity) = work.begin(|words, bytes, capacity| {
            (function.signature.decode(py, words, bytes), (words.len(), bytes.len()), capacity)
        })?;
        match arguments {
            Ok(Some(arguments)) => return Some((work, arguments, capacity)),
            Ok(None) => self.malformed(py, function, work, sizes.0, sizes.1),
            Err(error) => self.failed(py, function, work, error),
        }
        None
    }

    /// Answers a call with what its function returned.
    fn returned(
        &self,
        py: Python<'_>,
        function: &Function,
        work: Work,
        capacity: usize,
        value: PyResult<Bound<'_, PyAny>>,
    ) {
        let (mut words, mut bytes) = (Vec::new(), Vec::new());
        let encoded = value.and_then(|value| match work {
            Work::Call(_) => function.signature.encode(&value, &mut words, &mut bytes),
            Work::Post(_) => Ok(()),
        });
        if let Err(error) = encoded {
            return self.failed(py, function, work, error);
        }
        if bytes.len() > capacity && matches!(work, Work::Call(_)) {
            let what =
                format!("{} returned {} bytes, and the kernel takes {capacity}", function.name, bytes.len());
            let ends = "the lane got the status TOO_LARGE";
            self.keep(py, function, &work, PyValueError::new_err(what), 1, ends);
            return work.fail(CallError::TooLarge);
        }
        work.answer(&words, &bytes);
    }

    /// Calls a function for one call or post.
    pub fn single(&self, py: Python<'_>, function: &Function, work: Work) {
        let Some((work, arguments, capacity)) = self.arguments(py, function, work) else { return };
        CALLER.set(Some((work.caller(), matches!(work, Work::Post(_)))));
        let value = function.function.bind(py).call1(arguments);
        CALLER.set(None);
        self.returned(py, function, work, capacity, value);
    }

    /// Calls a function for all of these calls and posts at once.
    pub fn batch(&self, py: Python<'_>, function: &Function, all: Vec<Work>) {
        let signature = &function.signature;
        let (width, results) = (signature.arguments.len(), signature.result_words());
        let mut data = Vec::with_capacity(all.len() * width * 8);
        let mut lanes = Vec::with_capacity(all.len());
        for mut work in all {
            let begun = work.begin(|words, bytes, _| {
                let fits = words.len() == width && bytes.is_empty();
                if fits {
                    words.iter().for_each(|word| data.extend_from_slice(&word.to_le_bytes()));
                }
                (fits, words.len(), bytes.len())
            });
            match begun {
                Some((true, ..)) => lanes.push(work),
                Some((false, words, bytes)) => self.malformed(py, function, work, words, bytes),
                None => {}
            }
        }
        if lanes.is_empty() {
            return;
        }
        let data = PyBytes::new(py, &data);
        let replies = function.function.bind(py).call1((data, lanes.len())).and_then(|replies| {
            let replies = replies.cast_into::<PyBytes>()?;
            let (len, wanted) = (replies.as_bytes().len(), lanes.len() * results * 8);
            if len == wanted {
                Ok(replies)
            } else {
                Err(PyValueError::new_err("the batch's result has another size"))
            }
        });
        match replies {
            Ok(replies) => {
                let mut words = vec![0; results];
                for (lane, work) in lanes.into_iter().enumerate() {
                    let reply = &replies.as_bytes()[lane * results * 8..][..results * 8];
                    for (word, bytes) in words.iter_mut().zip(reply.as_chunks::<8>().0) {
                        *word = u64::from_le_bytes(*bytes);
                    }
                    work.answer(&words, &[]);
                }
            }
            Err(error) => {
                let failure = match self.refusal(py, &error) {
                    Some(code) => CallError::Failed(code),
                    None => {
                        self.keep(py, function, &lanes[0], error, lanes.len() as u64, ends(&lanes[0]));
                        CallError::Panicked
                    }
                };
                lanes.into_iter().for_each(|work| work.fail(failure));
            }
        }
    }

    /// Makes the coroutine of a call, with what gets its task.
    pub fn start<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        served: &Arc<Served>,
        index: usize,
        work: Work,
    ) -> Option<(Bound<'py, PyAny>, Reply, Option<f64>)> {
        let function = &served.functions[index];
        let (work, arguments, capacity) = self.arguments(py, function, work)?;
        let task = matches!(work, Work::Post(_)).then(|| PostTask::new(served.clone()));
        match function.function.bind(py).call1(arguments) {
            Ok(coroutine) => {
                let (handling, served) = (self.clone(), served.clone());
                let timeout = served.timeout.map(|limit| limit.as_secs_f64());
                let work = hostcall_locks::Mutex::new(Some((work, task)));
                Some((coroutine, Reply { handling, served, index, capacity, work }, timeout))
            }
            Err(error) => {
                self.failed(py, function, work, error);
                None
            }
        }
    }

    /// Does something for callers, and keeps an error of theirs where hostcall itself panics: the thread goes on, and what was
    /// left of the work has been dropped, which ends it.
    pub fn guarded(&self, callers: &[LaunchId], what: &str, work: impl FnOnce()) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else { return };
        CALLER.set(None);
        let said =
            panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(|said| &**said));
        let said = said.unwrap_or("it has no text");
        for (place, caller) in callers.iter().enumerate() {
            if !callers[..place].contains(caller) {
                let text = format!(
                    "hostcall panicked while it called {what}, which is a bug in hostcall: {said}. The calls ended with \
                     CANCELLED"
                );
                self.errors.keep(*caller, PyRuntimeError::new_err(text), 1);
            }
        }
        // Its drop may panic, too.
        std::mem::forget(panic);
    }

    /// Takes what was raised for a launch: the first exceptions, and how many lanes got no result.
    pub fn take(&self, py: Python<'_>, launch: Option<LaunchId>) -> (Vec<Py<PyAny>>, u64) {
        let kept = launch.map_or_else(|| self.errors.take_all(), |launch| self.errors.take(launch));
        // With its traceback, which is not part of the value before.
        let first = kept.first.into_iter().map(|error| error.into_value(py).into_any());
        (first.collect(), kept.count)
    }
}

fn ends(work: &Work) -> &'static str {
    match work {
        Work::Call(_) => "the lane got the status PANICKED",
        Work::Post(_) => "the post was counted as refused",
    }
}

/// Adds a note, also before Python 3.11.
fn add_note(error: &Bound<'_, PyAny>, note: &str) -> PyResult<()> {
    if let Ok(add) = error.getattr("add_note") {
        return add.call1((note,)).map(drop);
    }
    let mut notes: Vec<String> =
        error.getattr("__notes__").and_then(|notes| notes.extract()).unwrap_or_default();
    notes.push(note.into());
    error.setattr("__notes__", notes)
}

/// What answers the call of a coroutine when its task is done.
#[pyclass(frozen)]
pub struct Reply {
    handling: Arc<Handling>,
    served: Arc<Served>,
    index: usize,
    capacity: usize,
    /// With the place among the tasks of posts, which another one may have afterwards.
    work: hostcall_locks::Mutex<Option<(Work, Option<PostTask>)>>,
}

#[pymethods]
impl Reply {
    fn __call__(&self, py: Python<'_>, task: &Bound<'_, PyAny>) {
        let Some((work, _task)) = self.work.lock().take() else { return };
        // Its call has ended, or the device was closed: nobody waits for what it would say.
        if task.call_method0("cancelled").is_ok_and(|is_cancelled| is_cancelled.is_truthy().unwrap_or(false))
        {
            return work.fail(CallError::Cancelled);
        }
        let value = task.call_method0("result");
        self.handling.returned(py, &self.served.functions[self.index], work, self.capacity, value);
    }
}
