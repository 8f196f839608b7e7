//! C's `printf` for clients that send the format, then a block with the arguments, then the strings.

use super::conversation::{Target, To, append_lines, write};
use super::options::FaultKind;
use super::port::{KEPT_BYTES, Port};
use crate::engine::budget::Charge;
use crate::services::MAX_C_FORMAT_BYTES;
use hostcall_format::c::{Format, Layout};
use std::rc::Rc;

/// Memory that a parsed format takes for each of its bytes, at most.
const PARSED_BYTES: usize = 48;

/// A null pointer as LLVM's libc prints it.
const NULL_POINTER: &str = "(nullptr)";

/// What `printf` gives for an error.
const FAILED: u64 = -1i64 as u64;

/// A lane's line.
struct Line {
    lane: u32,
    /// `None` for a line that cannot be made.
    format: Option<Rc<Format>>,
    block: Vec<u8>,
    /// Addresses of strings whose text has not come yet, the next to ask for last.
    wanted: Vec<u64>,
    /// The strings that came, the last one first.
    strings: Vec<Option<Vec<u8>>>,
}

impl Line {
    /// Appends the line; its length, if it can be made.
    fn render(&mut self, layout: Layout, out: &mut Vec<u8>) -> Option<usize> {
        self.strings.reverse();
        self.format.as_ref()?.render(layout, &self.block, &self.strings, out).ok()
    }
}

/// Sets a lane's answer: `printf`'s result, and no string to send.
fn answer(port: &mut Port, lane: u32, result: u64) {
    port.words(lane)[..2].copy_from_slice(&[result, 0]);
}

pub(super) async fn print(port: &mut Port, to: To, packed: bool) -> Result<(), FaultKind> {
    let layout = if packed { Layout::Packed } else { Layout::Natural };
    port.receive_bytes().await?;
    let mut lines: Vec<Line> = Vec::new();
    for lane in port.lanes() {
        let format = format(port, lane, lines.last())?;
        port.words(lane)[0] = format.as_ref().map_or(0, |format| format.block_bytes(layout) as u64);
        lines.push(Line { lane, format, block: Vec::new(), wanted: Vec::new(), strings: Vec::new() });
    }
    port.send(1).await;
    port.receive_bytes().await?;
    for line in &mut lines {
        line.block = std::mem::take(port.bytes(line.lane));
        let addresses = line.format.as_ref().map(|format| format.strings(layout, &line.block));
        match addresses {
            Some(Ok(addresses)) => line.wanted = addresses,
            _ => line.format = None,
        }
    }
    receive_strings(port, &mut lines).await?;
    match to {
        To::Standard(stream) => {
            let mut lines = lines.iter_mut();
            append_lines(port, stream, FAILED, |port, lane, out| {
                let line = lines.next().expect("each lane has a line");
                let length = line.render(layout, out);
                answer(port, lane, length.map_or(FAILED, |length| length as u64));
            })
            .await?;
        }
        To::Streams(streams) => {
            for line in &mut lines {
                let written = print_to(port, line, layout, streams[line.lane as usize]).await?;
                answer(port, line.lane, written.unwrap_or(FAILED));
            }
        }
    }
    port.send(2).await;
    Ok(())
}

/// Prints a line to a stream. Its length, if it was made and all of it written. A short format makes a long line: such a
/// line is counted while it is written, and its memory is given up then.
async fn print_to(
    port: &mut Port,
    line: &mut Line,
    layout: Layout,
    stream: u64,
) -> Result<Option<u64>, FaultKind> {
    if !Target::of(port.shared(), stream).takes_bytes() {
        return Ok(None);
    }
    let out = port.bytes(line.lane);
    out.clear();
    let Some(length) = line.render(layout, out) else { return Ok(None) };
    let mut charge = Charge::new(&port.shared().budget);
    let is_counted = charge.add(length.saturating_sub(KEPT_BYTES)).is_ok();
    let written = if is_counted { write(port, line.lane, stream).await? } else { 0 };
    port.give_up_bytes(line.lane);
    Ok((written == length as u64).then_some(written))
}

/// The format that a lane sent, if it is one. Lanes of a wave mostly send the same.
fn format(port: &mut Port, lane: u32, before: Option<&Line>) -> Result<Option<Rc<Format>>, FaultKind> {
    let text = std::mem::take(port.bytes(lane));
    let format = match before {
        Some(before) if text == *port.bytes(before.lane) => before.format.clone(),
        _ if text.len() > MAX_C_FORMAT_BYTES => None,
        _ => {
            port.count_memory(text.len() * PARSED_BYTES)?;
            Format::parse(&text).ok().map(|format| Rc::new(format.null_pointer(NULL_POINTER)))
        }
    };
    *port.bytes(lane) = text;
    Ok(format)
}

/// Asks for the strings, the last one first, of all lanes together until none wants any more.
async fn receive_strings(port: &mut Port, lines: &mut [Line]) -> Result<(), FaultKind> {
    loop {
        for line in &mut *lines {
            // A null pointer has no text to send.
            while line.wanted.last() == Some(&0) {
                line.wanted.pop();
                line.strings.push(None);
            }
        }
        if lines.iter().all(|line| line.wanted.is_empty()) {
            return Ok(());
        }
        for line in &*lines {
            let words = port.words(line.lane);
            (words[0], words[1]) = (0, line.wanted.last().copied().unwrap_or(0));
        }
        port.send(2).await;
        port.receive_bytes().await?;
        for line in &mut *lines {
            if line.wanted.pop().is_some() {
                line.strings.push(Some(std::mem::take(port.bytes(line.lane))));
            }
        }
    }
}
