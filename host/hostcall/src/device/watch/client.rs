//! The side that looks: which processes there are, and what one of them says.

use super::follow::MOST_NEWS_BYTES;
use super::socket::{MOST_REQUEST_BYTES, PREFIX, left, peer, read_line, write_line};
use super::state::{Metrics, Process};
use super::{Answer, News, Request};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a process may take for its answer, and how long where it begins or ends a trace.
const LONGEST_ANSWER: Duration = Duration::from_secs(3);
const LONGEST_TRACE_ANSWER: Duration = Duration::from_secs(30);

impl Request {
    fn longest(&self) -> Duration {
        match self {
            Self::TraceOn(_) | Self::TraceOff { .. } => LONGEST_TRACE_ANSWER,
            Self::State | Self::Metrics | Self::Follow => LONGEST_ANSWER,
        }
    }
}

/// Processes that [`ask_all`] asks: each has a thread and an answer at the same time.
const MOST_ASKED: usize = 256;

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
    /// The request is longer than a process takes.
    #[error(
        "process {pid} takes a request of {most} bytes at most, and this one has {bytes}: name fewer points or kernels, or use \
         patterns",
        most = MOST_REQUEST_BYTES
    )]
    TooLong {
        /// The process.
        pid: u32,
        /// The request's bytes.
        bytes: usize,
    },
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
    exchange(pid, &connected(pid)?, request)
}

fn exchange<T: DeserializeOwned>(
    pid: u32,
    connection: &UnixStream,
    request: &Request,
) -> Result<T, WatchError> {
    let until = Instant::now() + request.longest();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => WatchError::Silent(pid),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            WatchError::Cut(pid)
        }
        _ => WatchError::System { pid, error },
    };
    let unknown = |error: serde_json::Error| WatchError::Unknown { pid, error: error.to_string() };
    let asked = serde_json::to_string(request).map_err(unknown)?;
    if asked.len() > MOST_REQUEST_BYTES {
        return Err(WatchError::TooLong { pid, bytes: asked.len() });
    }
    write_line(connection, asked, until).map_err(failed)?;
    let line = read_line(connection, MOST_ANSWER_BYTES, until).map_err(failed)?;
    match serde_json::from_slice(&line).map_err(unknown)? {
        Answer::Ok(answer) => Ok(answer),
        Answer::Error(why) => Err(WatchError::Refused { pid, why }),
    }
}

/// What processes have answered.
#[derive(Debug)]
#[non_exhaustive]
pub struct Answers<T> {
    /// Each process's answer.
    pub answers: Vec<(u32, Result<T, WatchError>)>,
    /// Processes that were not asked, since more are there than are asked at a time.
    pub left_out: u64,
}

/// Asks these processes, or all that can be looked into where none is named, all at once: one that does not answer holds up no other.
/// Of those that were not named such are left out that have ended meanwhile or are another user's. At most 256 are asked, however many
/// sockets of other users there are.
///
/// # Errors
/// When the system does not say which there are.
pub fn ask_all<T: DeserializeOwned + Send>(named: &[u32], request: &Request) -> io::Result<Answers<T>> {
    let pids = if named.is_empty() { processes()? } else { named.to_owned() };
    let Answers { answers: connections, left_out } = connect_all(pids, MOST_ASKED, connected);
    let answers = std::thread::scope(|scope| {
        let ask = |(pid, connection): (u32, Result<UnixStream, WatchError>)| {
            let thread = std::thread::Builder::new().name("hostcall-ask".into());
            let asked = connection.and_then(|connection| {
                let asks = move || exchange(pid, &connection, request);
                thread.spawn_scoped(scope, asks).map_err(|error| WatchError::System { pid, error })
            });
            (pid, asked)
        };
        let asked: Vec<_> = connections.into_iter().map(ask).collect();
        let answer =
            |(pid, asked): (u32, Result<std::thread::ScopedJoinHandle<'_, _>, WatchError>)| match asked {
                Ok(thread) => Some((pid, thread.join().ok()?)),
                Err(error) => Some((pid, Err(error))),
            };
        asked.into_iter().filter_map(answer).collect::<Vec<_>>()
    });
    let is_missing = |answer: &Result<T, WatchError>| {
        matches!(answer, Err(WatchError::NotThere(_) | WatchError::OtherUser(_)))
    };
    let answers =
        answers.into_iter().filter(|(_, answer)| !named.is_empty() || !is_missing(answer)).collect();
    Ok(Answers { answers, left_out })
}

/// Connects to the processes, which waits for none of them. Returns the connections to the first `most`, with why there is none to
/// others, and to how many more there could be one. Other users' processes do not count.
fn connect_all<T>(pids: Vec<u32>, most: usize, connect: impl Fn(u32) -> Result<T, WatchError>) -> Answers<T> {
    let (mut answers, mut count, mut left_out) = (Vec::new(), 0, 0);
    for pid in pids {
        match connect(pid) {
            // It is closed again here, and the process that takes it sees that it is.
            Ok(_) if count == most => left_out += 1,
            Ok(connection) => {
                count += 1;
                answers.push((pid, Ok(connection)));
            }
            Err(error) => answers.push((pid, Err(error))),
        }
    }
    Answers { answers, left_out }
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

/// A process that tells what comes.
#[derive(Debug)]
pub struct Following {
    pid: u32,
    connection: UnixStream,
    /// What was read and is no whole line.
    read: Vec<u8>,
    /// So many of these bytes have no end of a line.
    looked: usize,
}

/// Asks a process to tell what comes: what its kernels print, and which of its launches fail.
///
/// # Errors
/// When it cannot be asked.
pub fn follow(pid: u32) -> Result<Following, WatchError> {
    let connection = connected(pid)?;
    let system = |error: io::Error| WatchError::System { pid, error };
    let asked = serde_json::to_string(&Request::Follow).map_err(|error| system(error.into()))?;
    write_line(&connection, asked, Instant::now() + LONGEST_ANSWER).map_err(system)?;
    Ok(Following { pid, connection, read: Vec::new(), looked: 0 })
}

impl Following {
    /// Waits for what the process tells next. Returns `None` when it has ended, or tells no more.
    ///
    /// # Errors
    /// [`WatchError::Silent`] when it has told nothing until then: it may be waited for again. Others when it refuses, or tells
    /// what this version does not understand.
    pub fn next(&mut self, until: Instant) -> Result<Option<News>, WatchError> {
        let pid = self.pid;
        let unknown = |error: String| WatchError::Unknown { pid, error };
        loop {
            if let Some(end) = self.read[self.looked..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=self.looked + end).collect();
                self.looked = 0;
                let Ok(news) = serde_json::from_slice(&line) else {
                    return Err(match serde_json::from_slice::<Answer<News>>(&line) {
                        Ok(Answer::Error(why)) => WatchError::Refused { pid, why },
                        _ => unknown("its news is none".into()),
                    });
                };
                return Ok(Some(news));
            }
            self.looked = self.read.len();
            if self.read.len() > MOST_NEWS_BYTES {
                return Err(unknown(format!("a line of news has more than {MOST_NEWS_BYTES} bytes")));
            }
            let mut piece = [0; 16 << 10];
            let timed = left(until).and_then(|left| self.connection.set_read_timeout(Some(left)));
            match timed.and_then(|()| self.connection.read(&mut piece)) {
                Ok(0) => return Ok(None),
                Ok(count) => self.read.extend_from_slice(&piece[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::TimedOut => return Err(WatchError::Silent(pid)),
                    io::ErrorKind::ConnectionReset => return Ok(None),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    _ => return Err(WatchError::System { pid, error }),
                },
            }
        }
    }
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
        // It has more connections than it takes, so that nothing is known of who listens but the name.
        Errno::AGAIN if is_own_socket(pid) => WatchError::Silent(pid),
        Errno::AGAIN => WatchError::OtherUser(pid),
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

/// Says whether the socket of this name is the process's that it names, as the system says: of a process that may not be looked into
/// it is not.
fn is_own_socket(pid: u32) -> bool {
    let sockets = std::fs::read("/proc/net/unix").unwrap_or_default();
    let sockets = String::from_utf8_lossy(&sockets);
    let of_pid = sockets.lines().filter(|line| listener(line) == Some(pid));
    let links: Vec<_> = of_pid
        .filter_map(|line| line.split_ascii_whitespace().nth(6))
        .map(|number| format!("socket:[{number}]"))
        .collect();
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.any(|target| links.iter().any(|link| target.as_os_str() == link.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    /// Whoever makes many sockets with such names hides nobody.
    #[test]
    fn sockets_of_others_take_no_places() {
        let connect = |pid: u32| match pid {
            0..1000 => Err(WatchError::OtherUser(pid)),
            1003 => Err(WatchError::Silent(pid)),
            _ => Ok(pid),
        };
        let asked = |pids: std::ops::Range<u32>| {
            let Answers { answers: found, left_out } = connect_all(pids.collect(), 4, connect);
            let own: Vec<u32> = found.iter().filter_map(|(_, found)| found.as_ref().ok().copied()).collect();
            let failed =
                found.iter().filter(|(_, found)| matches!(found, Err(WatchError::Silent(_)))).count();
            (own, failed, left_out)
        };
        assert_eq!(asked(0..1002), (vec![1000, 1001], 0, 0));
        assert_eq!(asked(0..1005), (vec![1000, 1001, 1002, 1004], 1, 0));
        assert_eq!(asked(0..1010), (vec![1000, 1001, 1002, 1004], 1, 5));
    }

    /// Whoever takes no connections may have another process's name.
    #[test]
    fn who_takes_no_connections_is_silent_only_where_the_socket_is_its_own() {
        let refused = |socket: &OwnedFd, pid: u32| {
            let name = SocketAddrUnix::new_abstract_name(format!("{PREFIX}{pid}").as_bytes()).unwrap();
            rustix::net::bind(socket, &name).unwrap();
            // One may wait.
            rustix::net::listen(socket, 0).unwrap();
            let _first = connected(pid);
            connected(pid).unwrap_err()
        };
        let socket =
            || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let child = |stdin: Stdio| Command::new("sleep").arg("600").stdin(stdin).spawn().unwrap();
        let (of_child, of_others) = (socket(), socket());
        let mut children = [child(of_child.try_clone().unwrap().into()), child(Stdio::null())];
        let silent = refused(&of_child, children[0].id());
        let other = refused(&of_others, children[1].id());
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(matches!(silent, WatchError::Silent(_)), "{silent}");
        assert!(matches!(other, WatchError::OtherUser(_)), "{other}");
    }

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
