use super::*;
use crate::services::SharedHandler;
use crate::services::testing::{collect, collect_at_most};
use hostcall_device::io::Error;
use std::sync::Arc;

fn shared(stdin: impl Read + Send + 'static) -> SharedHandler<Stdio> {
    SharedHandler(Arc::new(Stdio::new(stdin, Sink::writer(io::sink()))))
}

#[test]
fn other_streams_are_refused() {
    let stdio = shared(io::empty());
    for stream in [0, 3, u32::MAX] {
        assert_eq!(stdio.write(stream, b"x"), Err(CallError::Malformed));
    }
}

#[test]
fn input_comes_in_lines_and_pieces() {
    let text = b"first\nsecond line\n\nend".as_slice();
    let stdio = shared(text);
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

/// Where the memory for replies ends, or the input fails, what was read of a line before is passed on.
#[test]
fn no_part_of_a_line_is_lost() {
    let text = [vec![b'a'; 20_000], b"\nb".into()].concat();
    let stdio = shared(io::Cursor::new(text.clone()));
    let (result, first) = collect_at_most(10_000, 50_000, |out| stdio.read_line(out));
    let (_, rest) = collect(50_000, |out| stdio.read_line(out));
    assert!(result == Ok(()) && [first, rest].concat() == text[..20_001]);
    let (result, _) = collect_at_most(0, 10, |out| stdio.read_line(out));
    assert_eq!(result, Err(CallError::Busy));
    assert_eq!(collect(10, |out| stdio.read_line(out)), (Ok(()), b"b".into()));
    let stdio = shared(Odd(0));
    assert_eq!(collect(9, |out| stdio.read_line(out)), (Ok(()), vec![0xff]));
    assert_eq!(collect(9, |out| stdio.read_line(out)).0.map_err(Error::from), Err(Error::Os(5)));
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
    let stdio = shared(Odd(0));
    assert_eq!(collect(9, |out| stdio.read(out)), (Ok(()), vec![0xff]));
    let (result, _) = collect(9, |out| stdio.read(out));
    assert_eq!(result.map_err(Error::from), Err(Error::Os(5)));
}
