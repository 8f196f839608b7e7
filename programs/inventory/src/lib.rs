//! Kernels that work with a database of the host through a typed service. Each lane asks for an item of its
//! own: lanes of a wave that go different ways make different calls at the same time.
//!
//! The package `hostcall-inventory` has the service's side with SQLite.

#![no_std]

use hostcall_device::{CallError, Global, Lane, Wire, kernel, println, service};

/// A store's items, which have a unique key, a name and an amount.
#[service(number = 512)]
pub trait Inventory {
    /// The amount of an item, whose name is put in `name`. `None`: there is no such item.
    fn find(key: u64, name: &mut [u8]) -> Option<u64>;
    /// Adds an item.
    fn add(key: u64, amount: u64, name: &str) -> Result<(), Refused>;
    /// Moves `amount` from one item to another, or nothing at all. Gives what is left of the first.
    fn transfer(from: u64, to: u64, amount: u64) -> Result<u64, Refused>;
}

/// Why the database was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Refused {
    /// There is an item of this key already.
    Duplicate,
    /// There is no item of this key.
    NoSuchItem,
    /// There is less of the item, which has only so much.
    TooFew(u64),
}

/// What a lane did, as the host reads it.
pub mod outcome {
    /// The item was there.
    pub const FOUND: u32 = 1;
    /// The lane added the item.
    pub const ADDED: u32 = 2;
    /// Another lane added the item between this lane's two calls.
    pub const DUPLICATE: u32 = 3;
    /// The lane moved stock.
    pub const MOVED: u32 = 4;
    /// There was less than the lane wanted to move.
    pub const TOO_FEW: u32 = 5;
    /// There was no such item.
    pub const NO_SUCH_ITEM: u32 = 6;
    /// The host did not answer.
    pub const FAILED: u32 = 7;
}

/// Names that items get, by their key.
pub const NAMES: [&str; 5] = ["bolt", "nut", "washer", "Schräubchen", "歯車"];

/// The name of the item of this key.
pub fn name_of(key: u64) -> &'static str {
    NAMES[(key % NAMES.len() as u64) as usize]
}

/// Looks up an item for each key and adds those that are missing, with `amount` of each.
#[kernel]
pub fn stock(lane: &Lane, keys: &[u64], amount: u64, outcomes: &[Global<u32>]) {
    if let Some(key) = keys.get(lane.global_id()) {
        outcomes[lane.global_id()].set(stock_one(*key, amount).unwrap_or(outcome::FAILED));
    }
}

fn stock_one(key: u64, amount: u64) -> Result<u32, CallError> {
    let mut name = [0; 32];
    if let (Some(amount), len) = Inventory::find(key, &mut name)? {
        let name = core::str::from_utf8(&name[..len]).unwrap_or("?");
        println!("found {} of item {}, {}", amount, key, name);
        return Ok(outcome::FOUND);
    }
    match Inventory::add(key, amount, name_of(key))? {
        Ok(()) => {
            println!("added {} of item {}, {}", amount, key, name_of(key));
            Ok(outcome::ADDED)
        }
        Err(_) => Ok(outcome::DUPLICATE),
    }
}

/// Moves `amount` of each item of `from` to the item of `to` at the same index.
#[kernel]
pub fn transfer(lane: &Lane, from: &[u64], to: &[u64], amount: u64, outcomes: &[Global<u32>]) {
    let index = lane.global_id();
    if let (Some(from), Some(to)) = (from.get(index), to.get(index)) {
        outcomes[index].set(match Inventory::transfer(*from, *to, amount) {
            Ok(Ok(_left)) => outcome::MOVED,
            Ok(Err(Refused::TooFew(_))) => outcome::TOO_FEW,
            Ok(Err(_)) => outcome::NO_SUCH_ITEM,
            Err(_) => outcome::FAILED,
        });
    }
}
