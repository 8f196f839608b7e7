//! Ranks in one place: what the processes of a job print, how they fail, who of them dies, and who waits for
//! whom, on one machine or many, however they were started (torchrun, mpirun, Slurm, Ray).
//!
//! Ranks link nothing for it. Each process with an open device listens on a socket of its machine
//! ([`hostcall::watch`]).
//!
//! ```text
//!  machine a                                              machine b, or a again
//! ┌────────┐ local socket ┌───────────────────────┐      ┌──────────────────────────┐
//! │ rank 0 ├──────────────┤ agent                 │ link │ collector                │
//! │ rank 1 ├──────────────┤ `collect --connect A` ├──────┤ `collect --listen A`     │
//! └────────┘              └───────────────────────┘      │ prints lines, errors,    │
//!  machine c                                             │ deaths                   │
//! ┌────────┐              ┌───────────────────────┐      │ waits: `--waits` asks    │
//! │ rank 2 ├──────────────┤ agent                 ├──────┤                          │
//! └────────┘              └───────────────────────┘      └──────────────────────────┘
//! ```
//!
//! On one machine `collect` alone is both, and opens no link.
//!
//! | what | how | who waits |
//! |---|---|---|
//! | lines, errors | a rank writes them into the socket of who follows it, as far as that takes them ([`local`]) | nobody: the rest is counted |
//! | which ranks there are | an agent announces a name of each before anything else of it, which says its rank ([`wire`]) | nobody |
//! | lines, errors, to the collector | messages, once it has asked the agent for its clock ([`agent`], [`wire`]) | the agent alone, until the link is given up; positions tell the gap |
//! | a rank's death | its socket ends at once; a name of its own on the link ends with its agent | |
//! | a rank that is stopped | it does not beat any more for 1 s | |
//! | a machine that is gone | the names of its agent end, after 1.5 s | |
//! | waits | the collector asks all agents twice, and these their ranks ([`waits`]) | who asks |
//! | what each rank does | the same, again and again; an answer a rank ([`top`], [`table`]) | who asks |
//! | traces | ranks write them on their machines; agents send the files when they are asked ([`traces`]) | who asks |
//! | clocks | 16 round trips to each agent, of which the shortest counts ([`clocks`]) | who asks |
//!
//! # What may come over the link
//! Anything. Messages have a version, and are checked and bounded before they are used ([`wire`]); text is
//! printed with its control characters written out. What waits to be looked at is bounded too
//! ([`collector`]), and what there is no room for is dropped and counted. Nothing listens unless it is told
//! where, and beyond the machine's own loopback only if that is said as well.
//!
//! # What a rank takes here
//! A name, a few numbers, and unfinished lines of 4 KiB at most, whatever the number of ranks ([`job`]);
//! beside that what the link takes of a machine.
#![forbid(unsafe_code)]

pub mod agent;
pub mod clocks;
pub mod collector;
pub mod job;
pub mod local;
pub mod table;
pub mod top;
pub mod traces;
pub mod waits;
pub mod wire;

use hostcall::trace::escaped;
use hostcall_remote::{Session, SessionBuilder};
use std::io::Write;

/// Says a sentence on the standard error.
pub fn complain(sentence: impl AsRef<str>) {
    let lines = sentence.as_ref().lines().map(|line| escaped(line).into_owned());
    let text = lines.collect::<Vec<_>>().join("\n  ");
    // Nobody can be told that it is closed.
    let _ = writeln!(std::io::stderr(), "hostcall: {text}");
}

/// Lets the process have as many files as the system allows it: a link is one.
pub fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it fails, there are as many as before.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns a builder of links to who listens there, and through it to all others that do so.
pub fn connecting(job: &str) -> SessionBuilder {
    Session::builder().job(job).setting("mode", "\"client\"")
}

/// Returns a builder of links for a collector, through which those that connect reach each other.
pub fn listening(job: &str) -> SessionBuilder {
    // One queue for all priorities: those of eight would take a third more of a link's memory.
    let session = Session::builder().job(job).setting("mode", "\"router\"");
    session.setting("transport/unicast/qos/enabled", "false")
}

/// What a command ends with: its exit code, or a sentence.
pub type Outcome = Result<i32, Box<dyn std::error::Error>>;
