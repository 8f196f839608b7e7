//! The side that looks: which processes there are, and what one of them says.

use super::socket::{PREFIX, peer, read_line, write_line};
use super::state::{Metrics, Process};
use super::{Answer, Request};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;
use std::io;
use std::os::unix::net::UnixStream;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// How long a process may take for its answer, and how long where it begins or ends a trace.
const LONGEST_ANSWER: Duration = Duration::from_secs(3);
const LONGEST_TRACE_ANSWER: Duration = Duration::from_secs(30);

impl Request {
    fn longest(&self) -> Duration {
        match self {
            Self::TraceOn(_) | Self::TraceOff => LONGEST_TRACE_ANSWER,
            Self::State | Self::Metrics => LONGEST_ANSWER,
        }
    }
}

/// Processes that [`ask_all`] asks.
const MOST_ASKED: usize = 64;

/// Longest answer.
const MOST_ANSWER_BYTES: usize = 16 << 20;

/// Why a process could not be looked into.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// No such process has a device, or it does not let others look.
    #[error(
        "process {0} has no device of hostcall's open that can be looked at: it has ended, has opened none yet, or was \
         started with HOSTCALL_WATCH=off"
    )]
    NotThere(u32),
    /// It is another user's, or another process has its name.
    #[error("process {0} is another user's, or runs in another container: look from there")]
    OtherUser(u32),
    /// It has not answered in time.
    #[error("process {0} has not answered in time: it is stopped, or the machine has too much to do")]
    Silent(u32),
    /// It has taken the question and given no answer.
    #[error("process {0} has given no answer: it ends, or has too much to do; ask again")]
    Cut(u32),
    /// It has refused.
    #[error("process {pid} says: {why}")]
    Refused {
        /// The process.
        pid: u32,
        /// Its sentence.
        why: String,
    },
    /// It has answered what this version does not understand.
    #[error("process {pid} answers what hostcall {version} does not understand: {error}", version = env!("CARGO_PKG_VERSION"))]
    Unknown {
        /// The process.
        pid: u32,
        /// What is wrong with it.
        error: String,
    },
    /// The system has failed.
    #[error("process {pid} cannot be looked into: {error}")]
    System {
        /// The process.
        pid: u32,
        /// The system's error.
        error: io::Error,
    },
}

/// Returns the processes that can be looked into, also other users': in order.
///
/// # Errors
/// When the system does not tell.
pub fn processes() -> io::Result<Vec<u32>> {
    let sockets = std::fs::read("/proc/net/unix")?;
    // Others' names need not be UTF-8.
    let mut found: Vec<u32> = String::from_utf8_lossy(&sockets).lines().filter_map(listener).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Returns whose socket a line of `/proc/net/unix` is, if it is one of hostcall's that listens.
fn listener(line: &str) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(3);
    // `SO_ACCEPTCON`.
    let listens = fields.next()? == "00010000";
    let name = fields.nth(3)?.strip_prefix('@')?.strip_prefix(PREFIX)?;
    name.parse().ok().filter(|_| listens)
}

/// Asks a process. What comes back is of the type that the [`Request`] names.
///
/// # Errors
/// When it cannot be asked, or does not answer.
pub fn ask<T: DeserializeOwned>(pid: u32, request: &Request) -> Result<T, WatchError> {
    let until = Instant::now() + request.longest();
    let connection = connected(pid)?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => WatchError::Silent(pid),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            WatchError::Cut(pid)
        }
        _ => WatchError::System { pid, error },
    };
    let unknown = |error: serde_json::Error| WatchError::Unknown { pid, error: error.to_string() };
    write_line(&connection, serde_json::to_string(request).map_err(unknown)?, until).map_err(failed)?;
    let line = read_line(&connection, MOST_ANSWER_BYTES, until).map_err(failed)?;
    match serde_json::from_slice(&line).map_err(unknown)? {
        Answer::Ok(answer) => Ok(answer),
        Answer::Error(why) => Err(WatchError::Refused { pid, why }),
    }
}

/// Asks these processes, or all that can be looked into where none is named, all at once: one that does not answer holds up no other.
/// Of those that were not named such are left out that have ended meanwhile or are another user's. At most 64 are asked.
///
/// # Errors
/// When the system does not say which there are.
pub fn ask_all<T: DeserializeOwned + Send>(
    named: &[u32],
    request: &Request,
) -> io::Result<Vec<(u32, Result<T, WatchError>)>> {
    let pids = if named.is_empty() { processes()? } else { named.to_owned() };
    let answers = std::thread::scope(|scope| {
        let ask = |pid| (pid, scope.spawn(move || ask(pid, request)));
        let asked: Vec<_> = pids.into_iter().take(MOST_ASKED).map(ask).collect();
        let answer = |(pid, thread): (u32, ScopedJoinHandle<'_, _>)| Some((pid, thread.join().ok()?));
        asked.into_iter().filter_map(answer).collect::<Vec<_>>()
    });
    let is_missing = |answer: &Result<T, WatchError>| {
        matches!(answer, Err(WatchError::NotThere(_) | WatchError::OtherUser(_)))
    };
    Ok(answers.into_iter().filter(|(_, answer)| !named.is_empty() || !is_missing(answer)).collect())
}

/// Asks a process what it does now.
///
/// # Errors
/// When it cannot be asked, or does not answer.
pub fn state(pid: u32) -> Result<Process, WatchError> {
    ask(pid, &Request::State)
}

/// Asks a process what its devices have counted.
///
/// # Errors
/// When it cannot be asked, or does not answer.
pub fn metrics(pid: u32) -> Result<Metrics, WatchError> {
    ask(pid, &Request::Metrics)
}

/// Connects without waiting for who listens: a process that is stopped takes no connections.
fn connected(pid: u32) -> Result<UnixStream, WatchError> {
    let connect_now = || {
        let name = SocketAddrUnix::new_abstract_name(format!("{PREFIX}{pid}").as_bytes())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &name)?;
        Ok::<_, Errno>(socket)
    };
    let socket = connect_now().map_err(|error| match error {
        Errno::CONNREFUSED | Errno::NOENT => WatchError::NotThere(pid),
        Errno::AGAIN => WatchError::Silent(pid),
        error => WatchError::System { pid, error: error.into() },
    })?;
    let connection = UnixStream::from(socket);
    let system = |error| WatchError::System { pid, error };
    let (own, listener) = (rustix::process::geteuid(), peer(&connection).map_err(system)?);
    let is_own = listener.uid == own.as_raw() || own.is_root();
    if !is_own || listener.pid.cast_unsigned() != pid {
        return Err(WatchError::OtherUser(pid));
    }
    connection.set_nonblocking(false).map_err(system)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_listen_are_processes() {
        let line = |flags: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0001 01 123 {name}")
        };
        assert_eq!(listener(&line("00010000", "@hostcall-41")), Some(41));
        assert_eq!(listener(&line("00000000", "@hostcall-41")), None);
        assert_eq!(listener(&line("00010000", "@hostcall-41x")), None);
        assert_eq!(listener(&line("00010000", "/run/hostcall-41")), None);
        assert_eq!(listener("Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }
}
