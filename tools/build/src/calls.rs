//! Which functions of a PTX text call which.

use crate::ptx::{Function, words};
use std::collections::{BTreeMap, BTreeSet};

/// The functions of a text, by their symbols.
pub(crate) struct Program<'f, 't> {
    pub functions: BTreeMap<&'t str, &'f Function<'t>>,
    /// Names of functions, among others, whose addresses are taken.
    pointed_at: BTreeSet<&'t str>,
}

impl<'f, 't> Program<'f, 't> {
    /// `all` are the functions of the text.
    pub fn new(ptx: &'t str, all: &'f [Function<'t>]) -> Self {
        Self {
            functions: all.iter().map(|function| (function.name, function)).collect(),
            pointed_at: pointed_at(ptx).collect(),
        }
    }

    /// The entry, and which of the functions that are `wanted` it can reach. Through a pointer it gets to all that are pointed at.
    pub fn reached_by(
        &self,
        entry: &Function<'t>,
        wanted: impl Fn(&Function<'t>) -> bool,
    ) -> BTreeSet<&'t str> {
        let (mut reached, mut left) = (BTreeSet::from([entry.name]), vec![entry.name]);
        while let Some(function) = left.pop().and_then(|name| self.functions.get(name)) {
            let calls = function.statements.iter().filter(|statement| statement.opcode.starts_with("call"));
            for call in calls {
                let callee = call.words().find_map(|word| self.functions.get(word));
                let callees = match callee {
                    Some(callee) => vec![*callee],
                    None => {
                        self.pointed_at.iter().filter_map(|name| self.functions.get(name).copied()).collect()
                    }
                };
                for callee in callees {
                    if wanted(callee) && reached.insert(callee.name) {
                        left.push(callee.name);
                    }
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
