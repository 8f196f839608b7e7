//! C's `printf` for clients that send the format, then a block with the arguments, then the strings.

use super::conversation::{To, write};
use super::options::FaultKind;
use super::port::Port;
use hostcall_format::c::{Format, Layout};
use std::rc::Rc;

/// Longest format.
const MAX_FORMAT_BYTES: usize = 64 << 10;

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

pub(super) async fn print(port: &mut Port, to: To, packed: bool) -> Result<(), FaultKind> {
    let layout = if packed { Layout::Packed } else { Layout::Natural };
    port.receive_bytes().await?;
    let mut lines: Vec<Line> = Vec::new();
    for lane in port.lanes() {
        let format = format(port, lane, lines.last());
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
    for Line { lane, format, block, strings, .. } in &mut lines {
        strings.reverse();
        let out = port.bytes(*lane);
        out.clear();
        let rendered = format.as_ref().map(|format| format.render(layout, block, strings, out));
        if !matches!(rendered, Some(Ok(_))) {
            *format = None;
        }
    }
    let lengths: Vec<usize> = lines.iter().map(|line| port.bytes(line.lane).len()).collect();
    write(port, &to, false).await?;
    for (line, length) in lines.iter().zip(lengths) {
        let words = port.words(line.lane);
        if line.format.is_none() || words[0] != length as u64 {
            words[0] = FAILED;
        }
        words[1] = 0;
    }
    port.send(2).await;
    Ok(())
}

/// The format that a lane sent. Lanes of a wave mostly send the same.
fn format(port: &mut Port, lane: u32, before: Option<&Line>) -> Option<Rc<Format>> {
    if let Some(Line { lane: other, format, .. }) = before {
        let text = std::mem::take(port.bytes(lane));
        let same = text == *port.bytes(*other);
        *port.bytes(lane) = text;
        if same {
            return format.clone();
        }
    }
    let text = port.bytes(lane);
    let parse = || Format::parse(text).ok().map(|format| Rc::new(format.null_pointer(NULL_POINTER)));
    (text.len() <= MAX_FORMAT_BYTES).then(parse)?
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
