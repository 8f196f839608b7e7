//! How nodes of graphs are named, also in errors.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::repeat_n;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What no other node of the process has, however it was added: numbers of nodes are the same in every
/// graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark(NonZeroU64);

impl Mark {
    pub fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let mark = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self(NonZeroU64::new(mark).expect("nobody adds so many nodes"))
    }
}

/// A node of a graph: its number, from 0 in the order in which nodes were added, and that it is this
/// graph's. It is a node of the graph's clones and instances too, if they were made when the node was
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    pub(crate) at: u32,
    pub(crate) mark: Mark,
}

impl NodeId {
    /// Returns the node's number.
    pub const fn index(self) -> u32 {
        self.at
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}

/// Where a node is in an instance: its number, and before it those of the graphs that it is in. `3.0.2` is node 2 of
/// body 0 of node 3. Paths of the same numbers are equal.
#[derive(Clone)]
pub struct NodePath {
    numbers: Arc<[u32]>,
    /// Which nodes the numbers are said to be of. `None` for a body; those at the end that are `None` are
    /// left out.
    marks: Arc<[Option<Mark>]>,
}

impl NodePath {
    /// Returns the numbers, the outermost first.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Returns the path of a node of the graph that this node is, or of the body that this is.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Self {
        let bodies = self.numbers.len() - self.marks.len();
        let marks = self.marks.iter().copied().chain(repeat_n(None, bodies)).chain([Some(node.mark)]);
        Self { marks: marks.collect(), ..self.child(node.at) }
    }

    /// Returns the path of a body of this node.
    #[must_use]
    pub fn body(&self, number: u32) -> Self {
        self.child(number)
    }

    /// Returns the path of this instance's or graph's own nodes, without one.
    pub(crate) fn root() -> Self {
        Self { numbers: Arc::default(), marks: Arc::default() }
    }

    pub(crate) fn child(&self, number: u32) -> Self {
        let numbers = self.numbers.iter().copied().chain([number]).collect();
        Self { numbers, marks: self.marks.clone() }
    }

    /// Returns the path of its first numbers.
    pub(crate) fn first(&self, numbers: usize) -> Self {
        Self { numbers: self.numbers[..numbers].into(), marks: Arc::default() }
    }

    /// Returns the node that the number at this place is said to be of.
    pub(crate) fn mark(&self, place: usize) -> Option<Mark> {
        self.marks.get(place).copied().flatten()
    }
}

impl PartialEq for NodePath {
    fn eq(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }
}

impl Eq for NodePath {}

impl Hash for NodePath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.numbers.hash(state);
    }
}

impl fmt::Debug for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodePath").field(&self.numbers).finish()
    }
}

/// A node of the graph itself.
impl From<NodeId> for NodePath {
    fn from(node: NodeId) -> Self {
        Self::root().node(node)
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, number) in self.numbers.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            number.fmt(f)?;
        }
        Ok(())
    }
}
