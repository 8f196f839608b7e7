//! What comes, told to who follows the process: its kernels' text, its launches' failures, its devices'
//! opening and end.
//!
//! Whoever has something to tell writes it into the followers' sockets itself, as far as these take it at
//! once. So what a program has flushed, and the failure that it is about to end with, are with the system
//! before it goes on, and reach who follows although the process ends at once. What a socket does not take is
//! kept, up to [`MOST_KEPT_BYTES`] for each follower; beyond that it is left out, and its bytes are counted
//! by the next text that is told.

use super::collect::{looks, short};
use super::socket::who;
use super::state::Identity;
use crate::device::stream::ON_FAILURE;
use hostcall_locks::{Mutex, MutexGuard};
use hostcall_server::services::{TakenText, hear_text};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest line of news: a piece of text of [`PIECE_BYTES`], each byte of which may be written as six.
pub(super) const MOST_NEWS_BYTES: usize = 256 << 10;

/// Text that is told at a time.
const PIECE_BYTES: usize = 16 << 10;

/// What is kept for a follower whose socket takes no more.
const MOST_KEPT_BYTES: usize = 256 << 10;

/// Who follows at a time.
const MOST_FOLLOWERS: usize = 8;

/// Longest text of a failure, in characters.
const MOST_FAILURE_CHARACTERS: usize = 2048;

/// How often a follower is told that the process lives, and how often its socket is tried again.
const BEAT: Duration = Duration::from_millis(200);
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// What a process tells who follows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
#[non_exhaustive]
pub enum News {
    /// Comes first.
    Begins {
        /// Which process it is.
        who: Identity,
        /// The first launch that has failed so far.
        failure: Option<Failure>,
    },
    /// Kernels have printed this. It may begin and end anywhere in a line.
    Text {
        /// The sink that it went to: no two sinks of a process have the same.
        sink: u64,
        /// The text, in which what is no UTF-8 is replaced.
        text: String,
        /// How many bytes of the sink were left out before it.
        missed: u64,
    },
    /// A launch has failed.
    Failed(Failure),
    /// The first device was opened, or the last one has ended.
    Devices {
        /// Which of the two.
        open: bool,
    },
    /// The process lives: comes several times in a second.
    Beat,
}

/// How a launch failed. One that was cancelled, or did not run because another one had failed, is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// Which of the process's failures it is, from 1 on.
    pub number: u64,
    /// When it was noticed, in seconds since 1970 by the clock of its machine.
    pub at_s: f64,
    /// The device's name.
    pub device: String,
    /// The kernel.
    pub kernel: String,
    /// What happened and where, in a sentence that names the kernel.
    pub text: String,
}

struct Follower {
    number: u64,
    socket: Arc<UnixStream>,
    /// What the socket has not taken.
    kept: Vec<u8>,
    /// Up to where each sink's text was told or left out.
    told: HashMap<u64, u64>,
    /// Bytes of each sink's text that were left out and not counted yet.
    missed: HashMap<u64, u64>,
    last: Instant,
    is_gone: bool,
}

impl Follower {
    /// Writes what the socket takes at once.
    fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.kept.len() && !self.is_gone {
            match send(&*self.socket, &self.kept[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.is_gone = true,
            }
        }
        self.kept.drain(..sent);
    }

    /// Tells this, if there is room. Returns whether there was.
    fn tell(&mut self, news: &News) -> bool {
        self.flush();
        if self.kept.len() >= MOST_KEPT_BYTES || self.is_gone {
            return false;
        }
        let Ok(line) = serde_json::to_string(news) else { return false };
        self.kept.extend_from_slice(line.as_bytes());
        self.kept.push(b'\n');
        self.last = Instant::now();
        self.flush();
        true
    }

    /// Tells text of a sink that begins at this position of it.
    fn text(&mut self, sink: u64, position: u64, text: &[u8]) {
        let told = self.told.entry(sink).or_default();
        let missed = position.saturating_sub(*told);
        let known = usize::try_from(told.saturating_sub(position)).unwrap_or(usize::MAX);
        *told = (*told).max(position + text.len() as u64);
        *self.missed.entry(sink).or_default() += missed;
        for piece in text.get(known..).unwrap_or_default().chunks(PIECE_BYTES) {
            let missed = self.missed.get(&sink).copied().unwrap_or(0);
            let text = String::from_utf8_lossy(piece).into_owned();
            let is_told = self.tell(&News::Text { sink, text, missed });
            let now_missed = if is_told { 0 } else { missed.saturating_add(piece.len() as u64) };
            self.missed.insert(sink, now_missed);
        }
    }
}

impl Follower {
    /// Tells how much was left out, where no text follows that would say so.
    fn tell_missed(&mut self) {
        let missed: Vec<_> =
            self.missed.iter().filter(|(_, missed)| **missed > 0).map(|(of, n)| (*of, *n)).collect();
        for (sink, missed) in missed {
            if self.tell(&News::Text { sink, text: String::new(), missed }) {
                self.missed.remove(&sink);
            }
        }
    }
}

#[derive(Default)]
struct Followed {
    followers: Vec<Follower>,
    numbers: u64,
    first: Option<Failure>,
    failures: u64,
}

static FOLLOWED: Mutex<Option<Followed>> = Mutex::new(None);

/// Nobody is told of anything while what is returned lives.
pub(crate) fn hold() -> impl Sized {
    let followed: MutexGuard<'static, _> = FOLLOWED.lock();
    followed
}

/// Forgets in a child of the process who follows its parent, and closes the sockets there: they would seem to
/// be the parent's as long as the child is.
#[allow(unsafe_code, reason = "the sockets are other threads' too, which the child does not have")]
pub(crate) fn stop_in_child() {
    for follower in FOLLOWED.lock().take().into_iter().flat_map(|followed| followed.followers) {
        let number = follower.socket.as_raw_fd();
        std::mem::forget(follower);
        // SAFETY: the thread that has the socket too is the parent's, and never closes it here. Nobody else uses it here.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

fn tell_all(news: &News) {
    if let Some(followed) = FOLLOWED.lock().as_mut() {
        for follower in &mut followed.followers {
            follower.tell(news);
        }
    }
}

/// Notes that the first device was opened, or that the last one has ended.
pub(super) fn note_open(open: bool) {
    let _ = ON_FAILURE.set(note_failure);
    tell_all(&News::Devices { open });
}

/// Notes that a launch has failed. It takes no lock that anybody holds who waits.
fn note_failure(device: &str, kernel: &str, text: &str) {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut followed = FOLLOWED.lock();
    let followed = followed.get_or_insert_default();
    followed.failures += 1;
    let failure = Failure {
        number: followed.failures,
        at_s: at.as_secs_f64(),
        device: device.to_owned(),
        kernel: short(kernel),
        text: text.chars().take(MOST_FAILURE_CHARACTERS).collect(),
    };
    for follower in &mut followed.followers {
        follower.tell(&News::Failed(failure.clone()));
    }
    followed.first.get_or_insert(failure);
}

fn heard(TakenText { sink, position, text }: TakenText<'_>) {
    if let Some(followed) = FOLLOWED.lock().as_mut() {
        followed.followers.iter_mut().for_each(|follower| follower.text(sink, position, text));
    }
}

/// A follower, as long as its connection is served.
struct Follows(u64);

impl Drop for Follows {
    fn drop(&mut self) {
        if let Some(followed) = FOLLOWED.lock().as_mut() {
            followed.followers.retain(|follower| follower.number != self.0);
        }
    }
}

/// Tells who is connected what comes, until it ends the connection.
///
/// # Errors
/// A sentence, where too many follow the process.
pub(super) fn tell(socket: &Arc<UnixStream>) -> Result<(), String> {
    hear_text(heard);
    // Before the lock: whoever holds these may have something to tell.
    let (who, devices) = (who(), looks());
    let sinks: Vec<_> = devices.iter().filter_map(|device| device.at(|parts| parts.stdio.clone())).collect();
    drop(devices);
    let follows = {
        let mut followed = FOLLOWED.lock();
        let followed = followed.get_or_insert_default();
        if followed.followers.len() >= MOST_FOLLOWERS {
            return Err(format!("{MOST_FOLLOWERS} others follow the process now; end one of them"));
        }
        followed.numbers += 1;
        let mut follower = Follower {
            number: followed.numbers,
            socket: socket.clone(),
            kept: Vec::new(),
            told: HashMap::new(),
            missed: HashMap::new(),
            last: Instant::now(),
            is_gone: false,
        };
        follower.tell(&News::Begins { who, failure: followed.first.clone() });
        for stdio in &sinks {
            let sink = stdio.sink();
            let (taken, tail) = sink.taken();
            follower.text(sink.number(), taken - tail.len() as u64, &tail);
        }
        followed.followers.push(follower);
        Follows(followed.numbers)
    };
    // Nobody's text waits for this thread.
    drop(sinks);
    serve(socket, &follows);
    Ok(())
}

/// Looks after what the socket has not taken, and whether the other side is there.
fn serve(mut socket: &UnixStream, follows: &Follows) {
    if socket.set_read_timeout(Some(TRY_AGAIN)).is_err() {
        return;
    }
    loop {
        // Nothing is said here but that the connection ends.
        match socket.read(&mut [0]) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    || error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
        let mut followed = FOLLOWED.lock();
        let followers = followed.iter_mut().flat_map(|followed| &mut followed.followers);
        let Some(follower) = followers.into_iter().find(|follower| follower.number == follows.0) else {
            return;
        };
        follower.flush();
        if follower.kept.is_empty() {
            follower.tell_missed();
            if follower.last.elapsed() >= BEAT {
                follower.tell(&News::Beat);
            }
        }
        if follower.is_gone {
            return;
        }
    }
}
