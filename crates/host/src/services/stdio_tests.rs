use super::*;
use crate::services::Shared;
use crate::services::testing::{Capture, collect};
use hostcall_device::io::Error;
use std::sync::mpsc;

fn shared(streams: Streams) -> Shared<Stdio> {
    Shared(Arc::new(Stdio::new(streams)))
}

#[test]
fn the_outputs_keep_their_order() {
    let both = Capture::default();
    let streams =
        Streams { stdout: Box::new(both.clone()), stderr: Box::new(both.clone()), ..Streams::none() };
    let stdio = shared(streams);
    let mut expected = String::new();
    for i in 0..10_000u32 {
        let line = format!("{i}\n");
        stdio.write(1 + i % 2, line.as_bytes()).unwrap();
        expected += &line;
    }
    stdio.flush().unwrap();
    assert_eq!(both.text(), expected);
    stdio.write(1, b"last\n").unwrap();
    drop(stdio);
    assert!(both.text().ends_with("9999\nlast\n"));
}

#[test]
fn other_streams_are_refused() {
    let stdio = shared(Streams::none());
    for stream in [0, 3, u32::MAX] {
        assert_eq!(stdio.write(stream, b"x"), Err(CallError::Malformed));
    }
}

/// Sends what it gets, and fails once nobody receives.
struct Pipe(mpsc::Sender<Vec<u8>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send(bytes.to_vec()) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_line_appears_without_a_flush() {
    let (sender, receiver) = mpsc::channel();
    let stdio = shared(Streams { stdout: Box::new(Pipe(sender)), ..Streams::none() });
    for line in [b"one\n", b"two\n"] {
        stdio.write(1, line).unwrap();
        assert_eq!(receiver.recv().unwrap(), line);
    }
}

#[test]
fn a_broken_output_is_given_up_and_the_other_goes_on() {
    let (sender, receiver) = mpsc::channel();
    drop(receiver);
    let stderr = Capture::default();
    let stdio = shared(Streams {
        stdout: Box::new(Pipe(sender)),
        stderr: Box::new(stderr.clone()),
        ..Streams::none()
    });
    for _ in 0..200 {
        stdio.write(1, &[b'x'; 100_000]).unwrap();
    }
    stdio.write(2, b"still here").unwrap();
    stdio.flush().unwrap();
    assert_eq!(stderr.text(), "still here");
}

/// Waits for a reader of each piece.
struct Slow(mpsc::SyncSender<Vec<u8>>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn printed_lines_do_not_wait_for_a_slow_reader() {
    let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(0);
    let stdio = shared(Streams { stdout: Box::new(Slow(sender)), ..Streams::none() });
    let print = || {
        let line = [b'x'; 1 << 16];
        stdio.0.outputs().append_at_once(Stream::Stdout, |bytes| bytes.extend_from_slice(&line));
    };
    print();
    // The writer has the first line, for which this thread is the reader, and takes no more.
    while !stdio.0.shared.pending.lock().writing {
        std::thread::yield_now();
    }
    for _ in 1..256 {
        print();
    }
    assert!(stdio.0.is_full());
    let mut got = 0;
    while got < 256 << 16 {
        got += receiver.recv().unwrap().len();
    }
    stdio.0.flush();
}

#[test]
fn writers_wait_while_the_buffer_is_full() {
    let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(0);
    let stdio = shared(Streams { stdout: Box::new(Slow(sender)), ..Streams::none() });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..40u8 {
                stdio.write(1, &[i; 1 << 20]).unwrap();
                assert!(stdio.0.shared.pending.lock().bytes.len() <= MAX_BYTES + (1 << 20));
            }
            stdio.flush().unwrap();
        });
        let mut got = Vec::new();
        while got.len() < 40 << 20 {
            got.extend(receiver.recv().unwrap());
        }
        assert!(got.is_sorted());
    });
}

#[test]
fn input_comes_in_lines_and_pieces() {
    let text = b"first\nsecond line\n\nend".as_slice();
    let stdio = shared(Streams { stdin: Box::new(text), ..Streams::none() });
    let line = |capacity| collect(capacity, |out| stdio.read_line(out)).1;
    assert_eq!(line(100), b"first\n");
    assert_eq!(line(6), b"second");
    assert_eq!(line(0), b"");
    assert_eq!(line(100), b" line\n");
    assert_eq!(line(100), b"\n");
    assert_eq!(collect(2, |out| stdio.read(out)), (Ok(()), b"en".into()));
    assert_eq!(collect(usize::MAX, |out| stdio.read_line(out)), (Ok(()), b"d".into()));
    assert_eq!(collect(usize::MAX, |out| stdio.read(out)), (Ok(()), vec![]));
}

/// Is interrupted once before each byte, and then fails.
struct Odd(u32);

impl Read for Odd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0 += 1;
        match self.0 {
            1 | 3 => Err(io::ErrorKind::Interrupted.into()),
            2 => {
                buffer[0] = 0xff;
                Ok(1)
            }
            _ => Err(io::Error::other("broken")),
        }
    }
}

#[test]
fn interruptions_are_repeated_and_failures_reported() {
    let stdio = shared(Streams { stdin: Box::new(Odd(0)), ..Streams::none() });
    assert_eq!(collect(9, |out| stdio.read(out)), (Ok(()), vec![0xff]));
    let (result, _) = collect(9, |out| stdio.read(out));
    assert_eq!(result.map_err(Error::from), Err(Error::Os(5)));
}
