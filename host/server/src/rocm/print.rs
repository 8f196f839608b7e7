//! `printf` and `fprintf`: a message with a control word, the format and the arguments.

use super::messages::{Message, REFUSED};
use super::services::Packet;
use crate::services::{MAX_C_FORMAT_BYTES, Stdio, Stream};
use hostcall_format::c::{Format, MAX_LINE_BYTES, RenderError};
use std::cell::Cell;

/// Bit of the control word: the line is for the standard error. No other bit has a meaning.
const TO_STDERR: u64 = 1;

/// A format that a lane sent, with its text. Lanes of a wave mostly send the same.
type Known = Option<(Vec<u8>, Option<Format>)>;

/// Takes the pieces of lines that the lanes of a packet send, and prints the lines that end.
pub(super) fn print(packet: &mut Packet<'_>, stdio: &Stdio) {
    let sink = stdio.sink();
    let may_wait = packet.may_wait();
    if may_wait {
        sink.wait_for_room();
    }
    let (mut known, is_full) = (None, Cell::new(false));
    // A short format makes a long line: there is room for one more, but not for all lanes'.
    let may_go_on = || {
        if !is_full.replace(false) {
            return true;
        }
        if may_wait {
            sink.wait_for_room();
        }
        may_wait || !sink.is_full()
    };
    packet.messages(may_go_on, |message| {
        let Some((stream, text, arguments)) = parts(&message) else { return REFUSED };
        let mut append = sink.append();
        if append.has_failed(stream) {
            return REFUSED;
        }
        let Some(format) = format(&mut known, text) else { return REFUSED };
        let written = append.text(stream, |out| format.render_words(arguments, out));
        is_full.set(append.is_full());
        // It takes the lock that `append` has.
        drop(append);
        if let Err(error @ RenderError::TooLong) = &written {
            // A kernel without fault may print such a line. Of others, their lane alone learns.
            sink.refuse(stream, MAX_LINE_BYTES as u64, &"a line", error);
        }
        written.map_or(REFUSED, |bytes| bytes as u64)
    });
}

/// Takes a message apart: the stream, the format's text and the words of the arguments.
fn parts(message: &Message) -> Option<(Stream, Vec<u8>, &[u64])> {
    let (control, rest) = message.words.split_first()?;
    let stream = match *control {
        0 => Stream::Stdout,
        TO_STDERR => Stream::Stderr,
        _ => return None,
    };
    let mut text = Vec::new();
    for (index, word) in rest.iter().enumerate() {
        let bytes = word.to_le_bytes();
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&bytes[..end]);
            return Some((stream, text, &rest[index + 1..]));
        }
        text.extend_from_slice(&bytes);
    }
    Some((stream, text, &[]))
}

/// Returns the parsed format, if it is one.
fn format(known: &mut Known, text: Vec<u8>) -> Option<&Format> {
    if known.as_ref().is_none_or(|(before, _)| *before != text) {
        let format = if text.len() > MAX_C_FORMAT_BYTES { None } else { Format::parse(&text).ok() };
        *known = Some((text, format));
    }
    known.as_ref().and_then(|(_, format)| format.as_ref())
}
