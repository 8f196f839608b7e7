//! Which functions of a PTX text call which.

use crate::ptx::{Function, words};
use std::collections::{BTreeMap, BTreeSet};

/// The functions of a text, by their symbols.
pub(crate) struct Program<'f, 't> {
    pub functions: BTreeMap<&'t str, &'f Function<'t>>,
    calls: BTreeMap<&'t str, Calls<'t>>,
    /// Functions whose addresses are taken.
    pointed_at: Vec<&'t str>,
}

/// What a function calls.
struct Calls<'t> {
    callees: BTreeSet<&'t str>,
    /// It also calls through a pointer.
    through_pointer: bool,
}

impl<'f, 't> Program<'f, 't> {
    /// `all` are the functions of the text.
    pub fn new(ptx: &'t str, all: &'f [Function<'t>]) -> Self {
        let functions: BTreeMap<_, _> = all.iter().map(|function| (function.name, function)).collect();
        let calls_of = |function: &Function<'t>| {
            let mut calls = Calls { callees: BTreeSet::new(), through_pointer: false };
            for call in function.statements.iter().filter(|statement| statement.opcode.starts_with("call")) {
                match call.words().find_map(|word| functions.get(word)) {
                    Some(callee) => _ = calls.callees.insert(callee.name),
                    None => calls.through_pointer = true,
                }
            }
            calls
        };
        let calls = all.iter().map(|function| (function.name, calls_of(function))).collect();
        let pointed_at: BTreeSet<_> =
            pointed_at(ptx).filter_map(|name| Some(functions.get(name)?.name)).collect();
        Self { calls, pointed_at: pointed_at.into_iter().collect(), functions }
    }

    /// What a function calls by its name.
    pub fn callees(&self, function: &str) -> impl Iterator<Item = &'f Function<'t>> {
        let callees = self.calls.get(function).into_iter().flat_map(|calls| &calls.callees);
        callees.map(|callee| self.functions[callee])
    }

    /// The entry, and which of the functions that are `wanted` it can reach. Through a pointer it gets to all that are pointed at.
    pub fn reached_by(
        &self,
        entry: &Function<'t>,
        wanted: impl Fn(&Function<'t>) -> bool,
    ) -> BTreeSet<&'t str> {
        self.reached_by_any([entry.name], wanted)
    }

    /// As [`Program::reached_by`], of several entries together.
    pub fn reached_by_any(
        &self,
        entries: impl IntoIterator<Item = &'t str>,
        wanted: impl Fn(&Function<'t>) -> bool,
    ) -> BTreeSet<&'t str> {
        let mut left: Vec<&str> = entries.into_iter().collect();
        let mut reached: BTreeSet<&str> = left.iter().copied().collect();
        while let Some(calls) = left.pop().and_then(|name| self.calls.get(name)) {
            let pointed_at = if calls.through_pointer { &self.pointed_at[..] } else { &[] };
            for callee in calls.callees.iter().chain(pointed_at).copied() {
                if wanted(self.functions[callee]) && reached.insert(callee) {
                    left.push(callee);
                }
            }
        }
        reached
    }
}

/// Words of a PTX text outside of calls and of functions' headers: names among them are addresses.
pub(crate) fn pointed_at(ptx: &str) -> impl Iterator<Item = &str> {
    let holds_addresses = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("mov.") || line.contains(".global ") && line.contains('=')
    };
    ptx.lines().filter(holds_addresses).flat_map(words)
}
