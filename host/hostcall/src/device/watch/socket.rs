//! The side that is looked at: a thread that listens, and one for each connection, for a second or two.

use super::follow;
use super::identity::identity;
use super::state::Identity;
use super::{Answer, Request, answer};
use hostcall_locks::{Mutex, MutexGuard};
use rustix::net::{Shutdown, shutdown};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How the name of a process's socket begins.
pub(super) const PREFIX: &str = "hostcall-";

/// Longest request.
pub(super) const MOST_REQUEST_BYTES: usize = 4 << 10;

/// How long a request may take to come, and an answer to be taken.
const LONGEST_EXCHANGE: Duration = Duration::from_secs(1);

/// Connections at a time. Later ones are told so at once.
const MOST_CONNECTIONS: usize = 16;

/// How long one that is told so may take to hear it, which others wait for.
const SOON: Duration = Duration::from_millis(20);

/// Until the next connection is waited for after the system refused one.
const RETRY_AFTER: Duration = Duration::from_millis(100);

static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// What listens while a device is open.
struct Listener {
    /// Of which process, as it was when its first device was opened: a child is another one.
    who: Identity,
    devices: usize,
    socket: Option<Listens>,
}

/// A socket, its thread, which has it too, and what says to that that it shall end.
struct Listens {
    socket: Arc<UnixListener>,
    thread: JoinHandle<()>,
    shall_end: Arc<AtomicBool>,
}

static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);

/// Others can look into the process while this lives, and its thread is there.
pub(crate) struct Listening(u32);

/// Has others look into the process as long as what is returned lives, unless the environment says that they may not, or the system
/// gives no socket or thread: then it is tried again with the next device.
pub(crate) fn listen() -> Listening {
    let here = std::process::id();
    let mut listener = LISTENER.lock();
    let own = listener.take().filter(|listener| listener.who.pid == here);
    let listener =
        listener.insert(own.unwrap_or_else(|| Listener { who: identity(), devices: 0, socket: None }));
    listener.devices += 1;
    if listener.devices == 1 {
        follow::note_open(true);
    }
    if listener.socket.is_none() && std::env::var_os("HOSTCALL_WATCH").is_none_or(|watch| watch != "off") {
        let begin = || {
            let name = format!("{PREFIX}{here}");
            let socket = Arc::new(UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?);
            let shall_end = Arc::<AtomicBool>::default();
            let (of_thread, told) = (socket.clone(), shall_end.clone());
            let thread = std::thread::Builder::new().name("hostcall-look".into());
            let thread = thread.spawn(move || run(&of_thread, &told))?;
            Ok::<_, io::Error>(Listens { socket, thread, shall_end })
        };
        match begin() {
            Ok(socket) => listener.socket = Some(socket),
            Err(error) => tracing::debug!(%error, "no other process can look into this one"),
        }
    }
    Listening(here)
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listener = LISTENER.lock();
        let Some(listener) = listener.as_mut().filter(|listener| listener.who.pid == self.0) else { return };
        listener.devices -= 1;
        if listener.devices == 0 {
            follow::note_open(false);
        }
        if listener.devices == 0
            && let Some(Listens { socket, thread, shall_end }) = listener.socket.take()
        {
            shall_end.store(true, Ordering::SeqCst);
            // It wakes the thread, which waits for nothing else; the next socket has the same name.
            if shutdown(&socket, Shutdown::Both).is_ok() {
                let _ = thread.join();
            }
        }
    }
}

/// Returns which process this is.
pub(super) fn who() -> Identity {
    LISTENER.lock().as_ref().map_or_else(identity, |listener| listener.who.clone())
}

/// Nobody opens the first device or closes the last one, as far as this module knows of it, while what is returned lives.
pub(crate) fn hold() -> impl Sized {
    let listener: MutexGuard<'static, _> = LISTENER.lock();
    listener
}

/// Closes the socket in a child of the process, where nobody listens: it would seem to be there as long as the child is.
#[allow(unsafe_code, reason = "the socket is another thread's, which the child does not have")]
pub(crate) fn stop_in_child() {
    CONNECTIONS.store(0, Ordering::SeqCst);
    if let Some(listens) = LISTENER.lock().take().and_then(|listener| listener.socket) {
        let number = listens.socket.as_raw_fd();
        std::mem::forget(listens);
        // SAFETY: the thread that has the socket too is the parent's, and never closes it here. Nobody else uses it here.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

/// Takes connections until the last device has ended.
fn run(socket: &UnixListener, shall_end: &AtomicBool) {
    while !shall_end.load(Ordering::SeqCst) {
        let Ok((connection, _)) = socket.accept() else {
            if !shall_end.load(Ordering::SeqCst) {
                std::thread::sleep(RETRY_AFTER);
            }
            continue;
        };
        if !is_allowed(&connection) {
            continue;
        }
        if CONNECTIONS.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
            CONNECTIONS.fetch_sub(1, Ordering::SeqCst);
            let _ = reply_error(
                &connection,
                "16 others look into the process now; ask again",
                Instant::now() + SOON,
            );
            continue;
        }
        let serves = Serves(Arc::new(connection));
        // Where the system starts no thread, the connection is closed.
        let _ = std::thread::Builder::new().name("hostcall-look".into()).spawn(move || serve(&serves.0));
    }
}

/// A connection that counts.
struct Serves(Arc<UnixStream>);

impl Drop for Serves {
    fn drop(&mut self) {
        CONNECTIONS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Says whether the other side is of the same user, or root.
fn is_allowed(connection: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    peer(connection).is_ok_and(|peer| peer.uid == own.as_raw() || peer.uid == 0)
}

/// Returns who the other side is. The number is 0 of a process that this one cannot see, such as another container's.
#[allow(unsafe_code, reason = "the system's call; that of the crate used else has no process 0")]
pub(super) fn peer(connection: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let to = (&raw mut peer).cast();
    // SAFETY: the socket is open, and `to` has as many bytes.
    let failed = unsafe {
        libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut bytes)
    };
    if failed == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

fn serve(connection: &Arc<UnixStream>) {
    let until = || Instant::now() + LONGEST_EXCHANGE;
    let line = match read_line(connection, MOST_REQUEST_BYTES, until()) {
        Ok(line) => line,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            let sentence = format!("a request has {MOST_REQUEST_BYTES} bytes at most, and this one has more");
            let _ = reply_error(connection, &sentence, until());
            return;
        }
        Err(_) => return,
    };
    let answer = match serde_json::from_slice::<Request>(&line) {
        Ok(Request::Follow) => match follow::tell(connection) {
            Ok(()) => return,
            Err(sentence) => Err(sentence),
        },
        // A panic is this thread's alone.
        Ok(request) => answer(request).map_err(|error| format!("the answer cannot be written: {error}")),
        Err(error) => Err(format!(
            "hostcall {} does not know the request ({error}); use the command of the program's version",
            env!("CARGO_PKG_VERSION")
        )),
    };
    // Nobody has to hear the answer.
    let _ = match answer {
        Ok(line) => write_line(connection, line, until()),
        Err(sentence) => reply_error(connection, &sentence, until()),
    };
}

fn reply_error(connection: &UnixStream, sentence: &str, until: Instant) -> io::Result<()> {
    let line = serde_json::to_string(&Answer::<()>::Error(sentence.to_owned()))?;
    write_line(connection, line, until)
}

/// What is left of the time of an exchange. Never zero, which a socket takes for no limit.
pub(super) fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left.max(Duration::from_millis(1))),
    }
}

/// Reads a line of at most so many bytes, without its end.
pub(super) fn read_line(mut connection: &UnixStream, most: usize, until: Instant) -> io::Result<Vec<u8>> {
    let (mut line, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        connection.set_read_timeout(Some(left(until)?))?;
        let count = match connection.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let end = piece[..count].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&piece[..end.unwrap_or(count)]);
        if line.len() > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if end.is_some() {
            return Ok(line);
        }
    }
}

/// Writes a line.
pub(super) fn write_line(mut connection: &UnixStream, mut line: String, until: Instant) -> io::Result<()> {
    line.push('\n');
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        connection.set_write_timeout(Some(left(until)?))?;
        match connection.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
