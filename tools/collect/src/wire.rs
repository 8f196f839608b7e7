//! What agents tell the collector, and how it is checked: JSON, bounded, of one version.
//!
//! Each message names the rank of everything in it, so that one that is lost takes nothing else with it. How
//! much of what a rank said is lost follows from numbers that only grow: a text's position among all that the
//! rank printed, a failure's number.

use hostcall::watch::{Failure, Identity};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which messages these are. Others are refused.
pub const VERSION: u32 = 1;

/// Longest message.
pub const MOST_BYTES: usize = 1 << 20;

/// Most that one says.
pub const MOST_ITEMS: usize = 4096;

/// Longest name of a machine, a job, a device or a kernel, and longest text, in bytes.
const MOST_NAME_BYTES: usize = 2048;
const MOST_TEXT_BYTES: usize = 64 << 10;

/// A process of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Who {
    /// Its machine's name.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// Its rank, if it has one.
    pub rank: Option<u64>,
    /// How many ranks there are, if that is known.
    pub size: Option<u64>,
    /// When its first device was opened, in ms since 1970 by its machine's clock: a later process may have
    /// the same number.
    pub since_ms: u64,
}

impl Who {
    /// Names a process as it says itself, on the machine that is named.
    pub fn new(identity: &Identity, host: &str) -> Self {
        let Identity { pid, rank, size, since, .. } = *identity;
        Self { host: host.to_owned(), pid, rank, size, since_ms: (since * 1e3) as u64 }
    }

    /// Returns what no other process has.
    pub fn key(&self) -> Key {
        (self.host.clone(), self.pid, self.since_ms)
    }
}

/// What no two processes have all of.
pub type Key = (String, u32, u64);

/// Returns a machine's name as names on the link may have it, where most characters are none.
pub fn host_name(host: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    host.chars().map(|c| if is_name(c) { c } else { '-' }).take(40).collect()
}

/// Returns the name by which an agent of this process announces itself on the link, for a machine that is
/// named as [`host_name`] does.
pub fn agent_name(host: &str) -> String {
    format!("{host}.{}", std::process::id())
}

/// Returns the name by which an agent announces a rank.
pub fn rank_name(agent: &str, who: &Who) -> String {
    let rank = who.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
    format!("{agent}/{}.{}.{rank}", who.pid, who.since_ms)
}

/// Returns the rank that an agent announces by a name, of which this is what stands behind the agent's.
pub fn named(agent: &str, rank: &str) -> Option<Who> {
    let (host, _) = agent.rsplit_once('.')?;
    let mut parts = rank.split('.');
    let (pid, since_ms) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let rank = match parts.next()? {
        "-" => None,
        rank => Some(rank.parse().ok()?),
    };
    let who = Who { host: host.to_owned(), pid, rank, size: None, since_ms };
    parts.next().is_none().then_some(who)
}

/// As `rank 3 (process 17 on node-b)`.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, pid, rank, .. } = self;
        match rank {
            Some(rank) => write!(f, "rank {rank} (process {pid} on {host})"),
            None => write!(f, "process {pid} on {host}"),
        }
    }
}

/// What happened to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// It has printed.
    Text {
        /// The number of the sink, of which each has lines of its own.
        sink: u64,
        /// How many bytes it had printed before.
        position: u64,
        /// What it has printed.
        text: String,
    },
    /// A launch has failed.
    Failed {
        /// How.
        failure: Failure,
    },
    /// Comes now and then while it lives.
    So {
        /// How many bytes it has printed.
        position: u64,
        /// Its first failure.
        failure: Option<Failure>,
        /// How many there were.
        failures: u64,
        /// For how long it has said nothing, where that is long.
        silent_s: Option<f64>,
    },
    /// Its process is gone.
    Ended {
        /// It had devices open.
        was_open: bool,
    },
}

/// Something that happened to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// The rank.
    pub who: Who,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// [`VERSION`].
    pub version: u32,
    /// The agent, as it is announced.
    pub agent: String,
    /// What happened, in its order.
    pub items: Vec<Item>,
}

/// Returns the message of these items, each of which is JSON already: who tells them has counted its bytes.
///
/// # Errors
/// When the agent's name cannot be written.
pub fn write(agent: &str, items: &[String]) -> serde_json::Result<Vec<u8>> {
    let agent = serde_json::to_string(agent)?;
    Ok(format!(r#"{{"version":{VERSION},"agent":{agent},"items":[{}]}}"#, items.join(",")).into_bytes())
}

/// Reads a message.
///
/// # Errors
/// A sentence, when it is none.
pub fn read(bytes: &[u8]) -> Result<Message, String> {
    let message: Message = read_json(bytes, MOST_BYTES)?;
    if message.version != VERSION {
        return Err(format!(
            "it is of version {}, not {VERSION}: use one version on all machines",
            message.version
        ));
    }
    if message.items.len() > MOST_ITEMS
        || !message.items.iter().all(is_bounded)
        || message.agent.len() > MOST_NAME_BYTES
    {
        return Err("it has more than a message may have".into());
    }
    Ok(message)
}

/// Reads something of at most so many bytes.
///
/// # Errors
/// A sentence, when it is none.
pub fn read_json<T: for<'a> Deserialize<'a>>(bytes: &[u8], most: usize) -> Result<T, String> {
    if bytes.len() > most {
        return Err(format!("it has {} bytes, of which {most} are taken at most", bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(|error| format!("it is none: {error}"))
}

/// Returns whether a name is no longer than names are.
fn is_name(name: &str) -> bool {
    name.len() <= MOST_NAME_BYTES
}

fn is_bounded(item: &Item) -> bool {
    let is_failure = |failure: &Failure| {
        is_name(&failure.device)
            && is_name(&failure.kernel)
            && failure.text.len() <= MOST_TEXT_BYTES
            && failure.at_s.is_finite()
    };
    is_name(&item.who.host)
        && match &item.what {
            What::Text { text, .. } => text.len() <= MOST_TEXT_BYTES,
            What::Failed { failure } => is_failure(failure),
            What::So { failure, .. } => failure.as_ref().is_none_or(is_failure),
            What::Ended { .. } => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(items: Vec<Item>) -> Message {
        Message { version: VERSION, agent: "a".into(), items }
    }

    fn text(bytes: usize) -> Item {
        let what = What::Text { sink: 0, position: 5, text: "x".repeat(bytes) };
        Item { who: Who { host: "node".into(), rank: Some(3), ..Who::default() }, what }
    }

    #[test]
    fn what_is_whole_is_read() {
        let message = message(vec![text(10), Item { what: What::Ended { was_open: true }, ..text(1) }]);
        assert_eq!(read(&serde_json::to_vec(&message).unwrap()).unwrap(), message);
        let items: Vec<_> = message.items.iter().map(|item| serde_json::to_string(item).unwrap()).collect();
        assert_eq!(read(&write(&message.agent, &items).unwrap()).unwrap(), message);
    }

    #[test]
    fn names_of_ranks_are_read() {
        let agent = format!("{}.17", host_name("node b.example"));
        for rank in [None, Some(3)] {
            let who = Who { host: "node-b.example".into(), pid: 5, rank, since_ms: 7, ..Who::default() };
            let name = rank_name(&agent, &who);
            assert_eq!(named(&agent, name.strip_prefix("node-b.example.17/").unwrap()), Some(who));
        }
        for name in ["", "1", "1.2", "1.2.3.4", "1.2.x", "-.2.3", "99999999999.2.3"] {
            assert_eq!(named(&agent, name), None, "{name}");
        }
    }

    #[test]
    fn what_is_none_or_too_much_is_refused() {
        let of = |message: &Message| read(&serde_json::to_vec(message).unwrap()).unwrap_err();
        assert!(of(&Message { version: 9, ..message(vec![]) }).contains("version 9"));
        assert!(of(&message(vec![text(MOST_TEXT_BYTES + 1)])).contains("more than"));
        assert!(of(&message(vec![text(0); MOST_ITEMS + 1])).contains("more than"));
        assert!(of(&message(vec![text(60_000); 20])).contains("bytes, of which"));
        for bytes in [&b""[..], b"{", b"null", b"[1,2]", b"\xff\xfe", &[b'['; 100_000]] {
            read(bytes).unwrap_err();
        }
    }

    /// A message that is cut or changed anywhere is read or refused, and nothing else happens.
    #[test]
    fn any_bytes_may_come() {
        let whole = serde_json::to_vec(&message(vec![text(20)])).unwrap();
        for at in 0..whole.len() {
            let _ = read(&whole[..at]);
            for byte in [0, b'"', b'9', 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = read(&changed);
            }
        }
    }
}
