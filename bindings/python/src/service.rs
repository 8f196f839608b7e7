//! Services whose methods are functions of Python.

use crate::queue::Queue;
use crate::words::Signature;
use hostcall::__private::Method;
use hostcall::server::{DeferredCalls, DeferredPosts, DeferredService, static_name};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// How a function takes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One by one.
    Single,
    /// All that wait: the words of all as bytes, and the same back.
    Batch,
    /// As a coroutine.
    Async,
}

/// A method as `hostcall/_service.py` describes it.
#[derive(FromPyObject)]
pub struct Described(u16, String, Py<PyAny>, Vec<String>, Vec<String>, String, bool);

/// A method with its function.
pub struct Function {
    pub name: &'static str,
    pub function: Py<PyAny>,
    pub signature: Signature,
    pub mode: Mode,
}

/// A service that is registered.
pub struct Served {
    methods: Vec<Method>,
    pub functions: Vec<Function>,
    queue: Arc<Queue>,
    /// After how long its calls end without an answer.
    pub timeout: Option<Duration>,
    /// How many coroutines of posts there are. The queue changes it.
    pub post_tasks: AtomicUsize,
}

/// A coroutine of a post, from its making to its end.
pub struct PostTask(Arc<Served>);

impl PostTask {
    pub fn new(served: Arc<Served>) -> Self {
        served.queue.begin_post_task(&served);
        Self(served)
    }
}

impl Drop for PostTask {
    fn drop(&mut self) {
        self.0.queue.end_post_task(&self.0);
    }
}

impl Served {
    pub fn new(described: Vec<Described>, queue: Arc<Queue>, timeout: Option<Duration>) -> PyResult<Self> {
        let (mut methods, mut functions) = (Vec::new(), Vec::new());
        for Described(number, name, function, arguments, results, mode, is_typed) in described {
            let name = static_name(&name);
            let signature = Signature::of(&arguments, &results)?;
            let mode = match &*mode {
                "single" => Mode::Single,
                "batch" => Mode::Batch,
                "async" => Mode::Async,
                _ => return Err(PyValueError::new_err(format!("there is no mode `{mode}`"))),
            };
            let untyped = Method::untyped(name, number);
            let schema = signature.schema(name);
            // SAFETY: the handler checks all that it gets, and trusts no caller.
            let typed = unsafe { Method::described(name, number, schema, false) };
            methods.push(if is_typed { typed } else { untyped });
            functions.push(Function { name, function, signature, mode });
        }
        Ok(Self { methods, functions, queue, timeout, post_tasks: AtomicUsize::new(0) })
    }
}

/// What the server has of it.
pub struct Registered(pub Arc<Served>);

impl DeferredService for Registered {
    fn methods(&self) -> &[Method] {
        &self.0.methods
    }

    fn calls(&self, calls: DeferredCalls) {
        self.0.queue.push_calls(self.0.clone(), calls, self.0.timeout);
    }

    fn posts(&self, posts: DeferredPosts) {
        self.0.queue.push_posts(self.0.clone(), posts);
    }
}
