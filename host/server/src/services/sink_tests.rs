use super::*;
use crate::services::error::status;
use crate::services::testing::Capture;
use hostcall_device::io::Error;
use std::sync::mpsc;

#[test]
fn the_streams_keep_their_order() {
    let both = Capture::default();
    let sink = Sink::writer(both.clone());
    let mut expected = String::new();
    for i in 0..10_000u32 {
        let line = format!("{i}\n");
        sink.write([Stream::Stdout, Stream::Stderr][i as usize % 2], line.as_bytes()).unwrap();
        expected += &line;
    }
    sink.flush().unwrap();
    assert_eq!(both.text(), expected);
    sink.write(Stream::Stdout, b"last\n").unwrap();
    drop(sink);
    assert!(both.text().ends_with("9999\nlast\n"));
}

/// Sends what it gets, and fails once nobody receives.
struct Pipe(mpsc::Sender<Vec<u8>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send(bytes.to_vec()) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::Error::from_raw_os_error(28)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_line_appears_without_a_flush() {
    let (sender, receiver) = mpsc::channel();
    let sink = Sink::writer(Pipe(sender));
    for line in [b"one\n", b"two\n"] {
        sink.write(Stream::Stdout, line).unwrap();
        assert_eq!(receiver.recv().unwrap(), line);
    }
}

#[test]
fn a_writer_that_fails_fails_what_comes_after_with_its_reason() {
    let (sender, receiver) = mpsc::channel();
    drop(receiver);
    let stderr = Capture::default();
    let sink = Sink::writers(Pipe(sender), stderr.clone());
    sink.write(Stream::Stdout, &[b'x'; 100_000]).unwrap();
    let reason = sink.flush().unwrap_err().to_string();
    assert!(reason.contains("standard output") && reason.contains("No space left"), "{reason}");
    let error = sink.write(Stream::Stdout, b"x").unwrap_err();
    assert_eq!(Error::from(status(&error)), Error::Os(28));
    sink.append().text(Stream::Stdout, |bytes| bytes.extend_from_slice(b"lost"));
    assert_eq!(sink.lost_bytes(), 100_004);
    // The other stream goes on.
    sink.write(Stream::Stderr, b"still here").unwrap();
    assert!(sink.flush().is_err());
    assert_eq!(stderr.text(), "still here");
}

#[test]
fn a_panic_leaves_nothing_of_its_text() {
    let (stdout, stderr) = (Capture::default(), Capture::default());
    let sink = Sink::writers(stdout.clone(), stderr.clone());
    let panicked = catch(|| {
        sink.append().text(Stream::Stdout, |bytes| {
            bytes.extend_from_slice(b"half a li");
            panic!("formatting that panics, as a test")
        })
    });
    assert!(panicked.is_err());
    sink.write(Stream::Stderr, b"a line\n").unwrap();
    sink.flush().unwrap();
    assert_eq!((stdout.text(), stderr.text(), sink.appended()), (String::new(), "a line\n".into(), 7));
}

/// Panics when it writes, and when it is dropped.
struct Broken;

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("a writer that panics, as a test")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        panic!("a writer that panics when it is dropped, as a test")
    }
}

#[test]
fn a_writer_that_panics_is_one_that_fails() {
    drop(Sink::writer(Broken));
    let sink = Sink::writer(Broken);
    sink.write(Stream::Stdout, b"text").unwrap();
    assert!(sink.flush().unwrap_err().to_string().contains("panicked"));
    assert!(sink.write(Stream::Stdout, b"text").is_err());
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
fn a_flush_waits_for_what_came_before_only() {
    let (sender, receiver) = mpsc::sync_channel(0);
    let sink = Sink::writer(Slow(sender));
    sink.write(Stream::Stdout, b"before").unwrap();
    let (flushes, flushed) = mpsc::channel();
    let flusher = sink.clone();
    std::thread::spawn(move || {
        flusher.flush().unwrap();
        flushes.send(()).unwrap();
    });
    // The writing thread has taken the first piece.
    while sink.0.0.state.lock().flushers == 0 || !sink.0.0.state.lock().bytes.is_empty() {
        std::thread::yield_now();
    }
    // Somebody prints on and on: the second piece waits for its reader for ever.
    sink.write(Stream::Stdout, b"after").unwrap();
    assert_eq!(receiver.recv().unwrap(), b"before");
    flushed.recv_timeout(Duration::from_secs(60)).expect("what came before is written");
    drop(receiver);
}

#[test]
fn what_may_not_wait_does_not_and_knows_when_it_is_too_much() {
    let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(0);
    let sink = Sink::writer(Slow(sender));
    let text = [b'x'; 1 << 20];
    let mut appended = 0;
    while !sink.is_full() {
        sink.append().text(Stream::Stdout, |bytes| bytes.extend_from_slice(&text));
        appended += text.len();
    }
    assert!((MOST_POSTED_BYTES..=2 * MOST_POSTED_BYTES).contains(&appended));
    let mut got = 0;
    while got < appended {
        got += receiver.recv().unwrap().len();
    }
    assert!(!sink.is_full());
}

#[test]
fn handlers_wait_while_the_buffer_is_full() {
    let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(0);
    let sink = Sink::writer(Slow(sender));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..40u8 {
                sink.write(Stream::Stdout, &[i; 1 << 20]).unwrap();
                assert!(sink.0.0.state.lock().bytes.len() <= MOST_BYTES + (1 << 20));
            }
            sink.flush().unwrap();
        });
        let mut got = Vec::new();
        while got.len() < 40 << 20 {
            got.extend(receiver.recv().unwrap());
        }
        assert!(got.is_sorted());
    });
}

#[test]
fn callbacks_get_text_as_it_comes() {
    let (pieces, got) = mpsc::channel();
    let sink = Sink::callback(move |stream, text| pieces.send((stream, text.to_vec())).unwrap());
    sink.write(Stream::Stderr, b"a li").unwrap();
    assert_eq!(got.recv().unwrap(), (Stream::Stderr, b"a li".to_vec()));
}

/// Panics when it is told, or when it is dropped.
#[derive(Debug)]
struct BadError {
    told: bool,
}

impl std::fmt::Display for BadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        assert!(!self.told, "an error that panics when it is told, as a test");
        f.write_str("a reason")
    }
}

impl std::error::Error for BadError {}

impl Drop for BadError {
    fn drop(&mut self) {
        assert!(self.told, "an error that panics when it is dropped, as a test");
    }
}

#[test]
fn an_error_that_panics_is_one() {
    for (told, reason) in [(true, "the writer panicked"), (false, "a reason")] {
        let sink = Sink::new(move |_, _| Err(io::Error::other(BadError { told })));
        sink.write(Stream::Stdout, b"text").unwrap();
        let deadline = Some(Instant::now() + Duration::from_secs(60));
        let error = sink.flush_until(deadline).expect_err("the writer has failed");
        assert!(error.to_string().contains(reason), "{error}");
        // The thread goes on.
        sink.write(Stream::Stderr, b"text").unwrap();
        while !sink.has_written(sink.appended()) {
            assert!(deadline.is_some_and(|deadline| Instant::now() < deadline), "nobody writes any more");
            std::thread::yield_now();
        }
    }
}

#[test]
fn the_last_text_is_kept() {
    let (lets, let_go) = mpsc::channel::<()>();
    let sink = Sink::callback(move |_, _| _ = let_go.recv());
    sink.write(Stream::Stdout, b"first\n").unwrap();
    sink.write(Stream::Stderr, b"second\n").unwrap();
    assert_eq!(sink.tail(), b"first\nsecond\n", "whether its writer has it or not");
    drop(lets);
    sink.flush().unwrap();
    assert_eq!(sink.tail(), b"first\nsecond\n");
    for text in [vec![b'x'; TAIL_BYTES - 1], b"yz".to_vec()] {
        sink.write(Stream::Stdout, &text).unwrap();
        sink.flush().unwrap();
    }
    let tail = sink.tail();
    assert_eq!((tail.len(), &tail[..2], &tail[tail.len() - 3..]), (TAIL_BYTES, &b"xx"[..], &b"xyz"[..]));
}
