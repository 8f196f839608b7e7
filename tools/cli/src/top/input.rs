//! What `hostcall trace top` reads: a file, or a pipe whose writer may be silent.

use super::LOOK_EVERY;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Weak};

/// Bytes of a pipe that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces of a pipe that are read before they are asked for.
const PIECES: usize = 4;

/// Where a trace comes from.
pub(super) enum Input {
    /// A read of it returns soon.
    File(File),
    /// A thread reads it.
    Pipe(Pipe),
}

/// A pipe, a terminal or something else of which a read may wait for ever. It is read by a thread, so that
/// whoever asks for more can look at the keyboard: what is not there yet is taken for the end, as of a file
/// that grows.
pub(super) struct Pipe {
    pieces: Receiver<io::Result<Vec<u8>>>,
    /// What was not asked for yet of the last piece.
    left: io::Cursor<Vec<u8>>,
    /// While somebody has this, a read waits.
    waits: Weak<()>,
}

impl Input {
    /// Begins to read a pipe. As long as the caller keeps what comes with it, a read waits for more.
    pub fn pipe(pipe: File) -> io::Result<(Self, Option<Arc<()>>)> {
        let (sender, pieces) = sync_channel(PIECES);
        crate::spawn("hostcall-pipe", move || read(pipe, &sender))?;
        let waits = Arc::new(());
        let pipe = Pipe { pieces, left: io::Cursor::default(), waits: Arc::downgrade(&waits) };
        Ok((Self::Pipe(pipe), Some(waits)))
    }
}

/// Reads a pipe as long as somebody takes what it has. An empty piece is its end, after which another
/// writer may open it.
fn read(mut pipe: impl Read, pieces: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let read = match pipe.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read,
        };
        let (is_over, has_failed) = (matches!(read, Ok(0)), read.is_err());
        let piece = read.map(|bytes| {
            piece.truncate(bytes);
            piece
        });
        if pieces.send(piece).is_err() || has_failed {
            return;
        }
        if is_over {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Pipe { pieces, left, waits } = match self {
            Self::File(file) => return file.read(buffer),
            Self::Pipe(pipe) => pipe,
        };
        match left.read(buffer)? {
            0 => {}
            bytes => return Ok(bytes),
        }
        let piece = match waits.strong_count() {
            0 => pieces.try_recv(),
            _ => pieces.recv().map_err(|_| TryRecvError::Disconnected),
        };
        match piece {
            Ok(piece) => *left = io::Cursor::new(piece?),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(0),
        }
        left.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What reads of a pipe give, in this order; then it fails.
    struct Reads(Vec<io::Result<u8>>);

    impl Read for Reads {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            buffer[0] = self.0.remove(0)?;
            Ok(1)
        }
    }

    #[test]
    fn an_interrupted_read_is_done_again() {
        let interrupted = || Err(ErrorKind::Interrupted.into());
        let reads = vec![interrupted(), Ok(1), interrupted(), interrupted(), Ok(2)];
        let (sender, pieces) = sync_channel(PIECES);
        read(Reads(reads), &sender);
        drop(sender);
        let came: Vec<_> = pieces.iter().map(|piece| piece.map_err(|error| error.kind())).collect();
        assert_eq!(came, [Ok(vec![1]), Ok(vec![2]), Err(ErrorKind::BrokenPipe)]);
    }
}
