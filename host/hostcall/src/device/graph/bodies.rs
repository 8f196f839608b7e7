//! Conditions and bodies: what the host does between the nodes of a replay.
//!
//! Functions of the host, and bodies that the device does not repeat by itself (`list.rs`), are *steps*:
//! operations that begin when everything before them is settled, and run on a thread of host functions while
//! the replay's stream waits. A step with bodies launches a body's nodes on the instance's *inner queue*,
//! waits until they are settled, and looks at the condition again. So its plan, which it has, is kept as long
//! as they need it (PLAN). A step calls functions in bodies itself, so no step waits for another one's
//! thread. The inner queue enters nothing into the device's order: the step's position has.
//!
//! Whoever cancels first marks the step and then cancels what is on the inner queue. The step looks at the
//! mark after each push. So one of the two ends each launch. The stream tells that the step's position waits
//! for the inner queue: a handler of a body's kernel that waits for the stream gets `WouldDeadlock`.
#![allow(unsafe_code, reason = "reads a condition's word")]

use super::Recorded;
use super::node::{Node, NodeKind, NodeMemory, RepeatedFunction};
use super::plan::{Plan, Planned};
use super::replay::NodeOrigin;
use crate::device::buffer::{DeviceBuffer, Wanted};
use crate::device::error::{Error, GraphError, LaunchFailure, NodeFailure, message_of};
use crate::device::owners::Owner;
use crate::device::stream::{Operation, StepControl, StreamQueue, TransferOwner, Transferring};
use crate::device::uses::Access;
use hostcall_device::kernel::Plain;
use hostcall_seam::DeviceAddress;
use hostcall_server::CancelReason;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What decides about bodies: a word in memory of the device, or a function of the host. It is looked at when everything
/// before it in the replay is done, and again after each turn of a body that is repeated.
#[derive(Clone)]
pub struct Condition(pub(super) Kind);

#[derive(Clone)]
pub(super) enum Kind {
    Word(DeviceAddress, Arc<NodeMemory>),
    Function(Arc<dyn Fn() -> u32 + Send + Sync>),
}

impl Condition {
    /// A number that kernels write, as `&Global<u32>` or an atomic.
    ///
    /// # Errors
    /// When the buffer has not one value.
    pub fn word(word: &DeviceBuffer<u32>) -> Result<Self, Error> {
        match word.len() {
            1 => Ok(Self::at(word)),
            len => Err(GraphError::Condition { len }.into()),
        }
    }

    /// Does what [`Condition::word`] does, with the bytes of the number: what hosts in other languages have.
    ///
    /// # Errors
    /// When the buffer has not four bytes, which begin at a multiple of four.
    pub fn word_bytes(word: &DeviceBuffer<u8>) -> Result<Self, Error> {
        const BYTES: usize = size_of::<u32>();
        match word.len() {
            BYTES if word.address().get().is_multiple_of(BYTES as u64) => Ok(Self::at(word)),
            bytes => Err(GraphError::ConditionBytes { bytes }.into()),
        }
    }

    /// The number that these values are.
    fn at<T: Plain>(word: &DeviceBuffer<T>) -> Self {
        let memory = Arc::new(NodeMemory::new([word.wanted(Access::Shared)]));
        Self(Kind::Word(word.address(), memory))
    }

    /// A function, called on a thread of hostcall's. It may use the device, but not wait for the replay's stream. Its panic
    /// ends the replay.
    pub fn function(function: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        Self(Kind::Function(Arc::new(function)))
    }

    pub(super) fn memory(&self) -> &[Wanted] {
        match &self.0 {
            Kind::Word(_, memory) => memory,
            Kind::Function(_) => &[],
        }
    }

    /// Returns where the word is that decides, if it is one.
    pub(super) fn address(&self) -> Option<DeviceAddress> {
        match &self.0 {
            Kind::Word(word, _) => Some(*word),
            Kind::Function(_) => None,
        }
    }

    /// Looks at the condition; everything that was before it is done.
    fn get(&self) -> Result<u32, NodeFailure> {
        match &self.0 {
            Kind::Word(word, memory) => {
                let mut bytes = [0; 4];
                let backend = &memory[0].allocation.core.backend;
                // SAFETY: the word lies there. The replay's place in the device's order keeps away who would write it plainly.
                unsafe { backend.load_words(*word, &mut bytes, 4) }.map_err(NodeFailure::Device)?;
                Ok(u32::from_le_bytes(bytes))
            }
            Kind::Function(function) => catch_unwind(AssertUnwindSafe(|| function()))
                .map_err(|payload| NodeFailure::Function { message: message_of(payload) }),
        }
    }
}

/// A node that has bodies.
pub(crate) struct ConditionalNode {
    pub kind: NodeKind,
    pub condition: Condition,
    pub bodies: Vec<Arc<Recorded>>,
}

impl ConditionalNode {
    /// What the condition is when the body with this number is done.
    pub fn when(&self, body: u32) -> RangeInclusive<u32> {
        match (self.kind, body) {
            (NodeKind::Switch, number) => number..=number,
            (_, 0) => 1..=u32::MAX,
            // What is done else.
            _ => 0..=0,
        }
    }
}

/// Does what the step of a replay is for.
pub(crate) fn run_step(
    plan: &Plan,
    planned: &Planned,
    origin: &NodeOrigin,
    control: &StepControl,
    stream: &StreamQueue,
) -> Result<(), Error> {
    match (&*planned.node, &plan.inner) {
        (Node::Function(function), _) => call(function, origin),
        (Node::Conditional(conditional), Some(inner)) => {
            Bodies { inner, control, stream }.run(planned, conditional, origin)
        }
        _ => Ok(()),
    }
}

fn call(function: &RepeatedFunction, origin: &NodeOrigin) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(|| function()))
        .map_err(|payload| origin.fail(NodeFailure::Function { message: message_of(payload) }))
}

/// Runs the bodies of a step.
struct Bodies<'a> {
    inner: &'a Arc<StreamQueue>,
    control: &'a StepControl,
    stream: &'a StreamQueue,
}

impl Drop for Bodies<'_> {
    /// PLAN: the step's plan may be dropped next, so that nothing of it may run, also when this thread panics.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.inner.finish_body(self.stream);
        }
    }
}

impl Bodies<'_> {
    fn run(
        &self,
        planned: &Planned,
        conditional: &ConditionalNode,
        origin: &NodeOrigin,
    ) -> Result<(), Error> {
        let condition = || conditional.condition.get().map_err(|failure| origin.fail(failure));
        if conditional.kind == NodeKind::While {
            let mut turn = 0;
            while condition()? != 0 {
                self.body(&planned.bodies[0], origin, Some(turn))?;
                turn += 1;
            }
            return Ok(());
        }
        let value = condition()?;
        let taken =
            (0..).zip(&*planned.bodies).find(|(number, _)| conditional.when(*number).contains(&value));
        taken.map_or(Ok(()), |(_, body)| self.body(body, origin, origin.turn()))
    }

    /// Does the nodes of a body, and waits until they are settled.
    fn body(&self, nodes: &[Planned], origin: &NodeOrigin, turn: Option<u64>) -> Result<(), Error> {
        for planned in nodes {
            let of_node = Arc::new(NodeOrigin::new(&origin.replay, planned, turn));
            match &*planned.node {
                Node::Function(function) => {
                    self.finish(origin)?;
                    call(function, &of_node)?;
                }
                Node::Conditional(conditional) => {
                    self.finish(origin)?;
                    self.run(planned, conditional, &of_node)?;
                }
                _ => {
                    let pushed = self.push(planned, &of_node);
                    if let Err(error) = pushed {
                        // What the body has begun ends before the step does (PLAN).
                        self.control.after_push();
                        let _ = self.inner.finish_body(self.stream);
                        let failure = match error {
                            Error::Closed => NodeFailure::Launch(LaunchFailure::Cancelled),
                            Error::Backend(error) => NodeFailure::Device(error),
                            other => NodeFailure::Refused(other.to_string()),
                        };
                        return Err(of_node.fail(failure));
                    }
                    self.control.after_push();
                }
            }
        }
        self.finish(origin)
    }

    fn push(&self, planned: &Planned, origin: &Arc<NodeOrigin>) -> Result<(), Error> {
        match &*planned.node {
            Node::Kernel(_) | Node::Foreign(_) => {
                let mut parts = self.inner.blank();
                planned.fill(&mut parts);
                let device = &self.inner.device;
                let owner: Arc<dyn Owner> = origin.clone();
                self.inner.launch(
                    planned.what.clone(),
                    Some(owner),
                    parts,
                    |parameters, sequence, words| planned.begin(device, parameters, sequence, words),
                )?;
            }
            Node::Transfer(transfer) => {
                let owner = TransferOwner { owner: origin.clone(), next: self.inner.next_sequence() };
                let what = transfer.what.clone();
                let transfer = Transferring { what, wanted: Vec::new(), owner: Some(owner) };
                self.inner.push(Vec::new(), Operation::Transfer(transfer.into()))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits until everything on the inner queue is settled, and says whether the step goes on.
    fn finish(&self, origin: &NodeOrigin) -> Result<(), Error> {
        self.inner.finish_body(self.stream)?;
        match self.control.cancelled() {
            None => Ok(()),
            Some(CancelReason::TimedOut) => Err(origin.fail(NodeFailure::Launch(LaunchFailure::TimedOut))),
            Some(_) => Err(origin.fail(NodeFailure::Launch(LaunchFailure::Cancelled))),
        }
    }
}
