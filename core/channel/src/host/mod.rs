//! The host's side: finding calls, copying and checking what the device wrote, answering.
//!
//! [`Scanner`] is one consumer thread's view of a range of slots; what it remembers of them decides, and
//! device-written words are only looked at when their lap is the expected one. [`Batch`] has the packets that it
//! took; [`Answer`] is the right and the duty to answer one of them, exactly once, from any thread.

mod answer;
mod batch;
mod copies;
#[cfg(not(loom))]
mod loan;
mod messages;
mod posts;
mod scanner;

pub use answer::{Answer, DetachedAnswer};
pub use batch::Batch;
#[cfg(not(loom))]
pub use loan::{Lent, Loan, LoanMemory, ProcessLoans};
pub use messages::{PostRun, RunsTaken};
pub use posts::{ENTRIES_A_VISIT, PostBatch, PostBuffer, Taken};
pub use scanner::{Scanner, Take};
