//! Emissary's calls: functions of host libraries (MPI, HDF5, an application's own) whose arguments the compiler packs into
//! one block of bytes.
//!
//! ```text
//!  u32   bytes of the block before the texts
//!  u32   arguments, the first of which is the call's own
//!  u32   a key for each argument: its type above 16 bits of its size; padding to 8 bytes
//!  u64   the call's own: 16 bits each of API, function, transfers to the host, and back
//!  u64   two for each transfer: address on the device, bytes
//!  ...   the arguments, each at a multiple of its size; of a text its length alone
//!  ...   the texts
//! ```
//!
//! With transfers, the client sends what lies at the addresses after the block, and gets what the function leaves for the
//! others before the result. All of it is the client's word, and checked against the block's own length.

use super::call::{Call, converse};
use super::conversation::Target;
use super::handlers::HandlerFailed;
use super::options::FaultKind;
use super::port::Port;
use super::server::Shared;
use crate::engine::budget::Charge;
use crate::services::{MAX_C_FORMAT_BYTES, Stream};
use hostcall_format::c::{Format, Layout};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The API of `printf` and `fprintf`, and their numbers in it.
const PRINT: u16 = 2;
const PRINTF: u16 = 1;
const FPRINTF: u16 = 2;

/// Most bytes that are kept for an argument or a transfer, beside texts and memory.
const KEPT_BYTES: usize = 128;

/// What `printf` gives for an error.
const FAILED: u64 = -1i64 as u64;

/// An argument of a function that is called by Emissary.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EmissaryValue {
    /// An integer of this many bits, whose higher ones are 0.
    Integer(u64, u16),
    /// A `float` or `double`.
    Float(f64),
    /// A text, without the zero byte at its end.
    Text(Vec<u8>),
    /// An address on the device.
    Address(u64),
    /// Memory that was transferred, or will be: its place in [`EmissaryCall::memory`].
    Memory(usize),
}

/// One lane's call of a function.
#[derive(Debug)]
pub struct EmissaryCall {
    /// The function's number in its API.
    pub function: u16,
    /// The lane's index in its wave.
    pub lane: u32,
    /// The arguments.
    pub arguments: Vec<EmissaryValue>,
    /// Memory that arguments refer to: what the lane sent, and what it gets when the function has returned, as long as it was.
    pub memory: Vec<Vec<u8>>,
}

/// Answers one lane's call.
pub(super) type EmissaryHandler = dyn Fn(&mut EmissaryCall) -> Result<u64, HandlerFailed> + Send + Sync;

/// A block of arguments, read as far as it was checked.
struct Block<'b> {
    bytes: &'b [u8],
    /// Keys of the arguments that are left.
    keys: Range<usize>,
    /// Where the next argument may lie, and the end of all of them.
    at: usize,
    end: usize,
    /// Where the next text begins.
    text: usize,
}

/// A transfer: an address on the device, and how many bytes.
type Transfer = (u64, usize);

/// What the call's own argument says.
struct Heading {
    api: u16,
    function: u16,
    to_host: Vec<Transfer>,
    back: Vec<Transfer>,
}

impl<'b> Block<'b> {
    /// Reads what stands before the arguments.
    fn new(bytes: &'b [u8], transfers: bool) -> Option<(Self, Heading)> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
        let (end, count) = (word(0)?, word(4)?);
        let keys = 8..8 + 4 * count;
        if end > bytes.len() || keys.end > end || count == 0 {
            return None;
        }
        let at = keys.end.next_multiple_of(8);
        let mut block = Self { bytes, keys: keys.start + 4..keys.end, at, end, text: end };
        let own = u64::from_le_bytes(block.take()?);
        let [back, to_host, function, api] = [0, 16, 32, 48].map(|shift| (own >> shift) as u16);
        if !transfers && (back, to_host) != (0, 0) {
            return None;
        }
        let mut read = |count: u16| (0..count).map(|_| block.transfer()).collect::<Option<Vec<_>>>();
        let heading = Heading { api, function, to_host: read(to_host)?, back: read(back)? };
        Some((block, heading))
    }

    /// Takes the next `N` bytes of the arguments, which lie at a multiple of `N`.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let at = self.at.next_multiple_of(N);
        let taken = *self.bytes.get(at..self.end)?.first_chunk()?;
        self.at = at + N;
        Some(taken)
    }

    fn transfer(&mut self) -> Option<Transfer> {
        self.keys.start += 8;
        let address = u64::from_le_bytes(self.take()?);
        // The client takes the lower half of the second word for the size.
        let bytes = u64::from_le_bytes(self.take()?) as u32 as usize;
        (self.keys.start <= self.keys.end).then_some((address, bytes))
    }

    /// Takes the next argument, where addresses of transferred memory stand for it.
    fn value(&mut self, memory: &HashMap<u64, usize>) -> Option<EmissaryValue> {
        let key = u32::from_le_bytes(*self.bytes[self.keys.clone()].first_chunk()?);
        self.keys.start += 4;
        Some(match (key >> 16, key as u16) {
            (1, 32) => EmissaryValue::Float(f32::from_le_bytes(self.take()?).into()),
            (1, 64) => EmissaryValue::Float(f64::from_le_bytes(self.take()?)),
            (2, 8) => EmissaryValue::Integer(u8::from_le_bytes(self.take()?).into(), 8),
            (2, 16) => EmissaryValue::Integer(u16::from_le_bytes(self.take()?).into(), 16),
            (2, 32) => EmissaryValue::Integer(u32::from_le_bytes(self.take()?).into(), 32),
            (2, 64) => EmissaryValue::Integer(u64::from_le_bytes(self.take()?), 64),
            (3, 1) => {
                let length = u32::from_le_bytes(self.take()?) as usize;
                let text = self.bytes.get(self.text..)?.get(..length)?;
                self.text += length;
                EmissaryValue::Text(text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
            }
            (3, _) => {
                let address = u64::from_le_bytes(self.take()?);
                let found = memory.get(&address);
                found.map_or(EmissaryValue::Address(address), |place| EmissaryValue::Memory(*place))
            }
            _ => return None,
        })
    }
}

/// A lane's call, and what it is to get back.
struct LaneCall {
    api: u16,
    call: EmissaryCall,
    to_host: usize,
    /// Places of the memory that goes back, in the client's order.
    back: Vec<usize>,
    result: u64,
}

/// Reads a lane's block. `charge` pays for what is kept of it, and for the memory that goes back.
fn parse(
    lane: u32,
    bytes: &[u8],
    transfers: bool,
    charge: &mut Charge,
    most_each: usize,
) -> Result<LaneCall, FaultKind> {
    let (mut block, heading) = Block::new(bytes, transfers).ok_or(FaultKind::Arguments)?;
    let Heading { api, function, to_host, back } = heading;
    let kept = (block.keys.len() / 4 + to_host.len() + back.len()) * KEPT_BYTES;
    charge.add(kept).map_err(|_| FaultKind::TooMuch)?;
    let (mut memory, mut places) = (Vec::new(), HashMap::new());
    for (address, _) in &to_host {
        places.insert(*address, memory.len());
        memory.push(Vec::new());
    }
    let mut goes_back = Vec::new();
    for (address, size) in back {
        let sent = places.get(&address).copied();
        goes_back.push(match sent {
            // What the lane sends and gets is one memory.
            Some(place) => place,
            None if size > most_each => return Err(FaultKind::TooLong(size as u64)),
            None => {
                charge.add(size).map_err(|_| FaultKind::TooMuch)?;
                places.insert(address, memory.len());
                memory.push(vec![0; size]);
                memory.len() - 1
            }
        });
    }
    let mut arguments = Vec::new();
    while !block.keys.is_empty() {
        arguments.push(block.value(&places).ok_or(FaultKind::Arguments)?);
    }
    let call = EmissaryCall { function, lane, arguments, memory };
    Ok(LaneCall { api, call, to_host: to_host.len(), back: goes_back, result: 0 })
}

/// Serves a port's call.
pub(super) async fn serve(port: &mut Port, transfers: bool) -> Result<(), FaultKind> {
    let shared = port.shared().clone();
    converse(port, move |call| answer(&shared, call, transfers)).await
}

fn answer(shared: &Arc<Shared>, call: &mut Call, transfers: bool) -> Result<(), FaultKind> {
    // What ended the call is told already.
    let ended = |_| FaultKind::HandlerFailed(0);
    call.receive_more_bytes().map_err(ended)?;
    let mut charge = Charge::new(&shared.budget);
    let mut lanes = Vec::new();
    for lane in call.lanes() {
        let block = std::mem::take(call.bytes(lane));
        lanes.push(parse(lane, &block, transfers, &mut charge, shared.budget.most_each)?);
    }
    for place in 0..lanes.iter().map(|lane| lane.to_host).max().unwrap_or(0) {
        call.receive_more_bytes().map_err(ended)?;
        for of in lanes.iter_mut().filter(|of| place < of.to_host) {
            of.call.memory[place] = std::mem::take(call.bytes(of.call.lane));
        }
    }
    for of in &mut lanes {
        let lengths: Vec<_> = of.call.memory.iter().map(Vec::len).collect();
        of.result = run(shared, of.api, &mut of.call)?;
        // The client writes as much as it gets. Who takes one out takes its place.
        of.call.memory.resize_with(lengths.len(), Vec::new);
        of.call.memory.iter_mut().zip(lengths).for_each(|(memory, length)| memory.resize(length, 0));
    }
    for place in 0..lanes.iter().map(|of| of.back.len()).max().unwrap_or(0) {
        for of in &mut lanes {
            let memory = of.back.get(place).map(|memory| of.call.memory[*memory].clone());
            *call.bytes(of.call.lane) = memory.unwrap_or_default();
        }
        call.send_bytes().map_err(ended)?;
    }
    for of in &lanes {
        call.words(of.call.lane)[0] = of.result;
    }
    call.send().map_err(ended)
}

/// Runs a lane's function.
fn run(shared: &Shared, api: u16, call: &mut EmissaryCall) -> Result<u64, FaultKind> {
    if let Some(handler) = shared.handlers.of_emissary(api) {
        return handler(call).map_err(super::call::failed);
    }
    let function = call.function;
    let (target, arguments) = match (api, function, &call.arguments[..]) {
        (PRINT, PRINTF, arguments) => (Target::Output(Stream::Stdout), arguments),
        (PRINT, FPRINTF, [EmissaryValue::Address(stream), arguments @ ..]) => {
            (Target::of(shared, *stream), arguments)
        }
        (PRINT, FPRINTF, _) => return Err(FaultKind::Arguments),
        _ => return Err(FaultKind::NoSuchEmissary { api, function }),
    };
    let mut line = Vec::new();
    let Some(length) = render(arguments, &mut line) else { return Ok(FAILED) };
    // A short format makes a long line.
    let mut charge = Charge::new(&shared.budget);
    if charge.add(length).is_err() {
        return Ok(FAILED);
    }
    let written = target.write(shared, &line, true);
    Ok(if written == Some(length) { length as u64 } else { FAILED })
}

/// Appends the line of a format and its arguments. Returns its length, if it can be made.
fn render(arguments: &[EmissaryValue], line: &mut Vec<u8>) -> Option<usize> {
    let (EmissaryValue::Text(format), arguments) = arguments.split_first()? else { return None };
    if format.len() > MAX_C_FORMAT_BYTES {
        return None;
    }
    let format = Format::parse(format).ok()?;
    // A text's word says which argument it is, from 1 on.
    let word = |(place, value): (usize, &EmissaryValue)| match value {
        EmissaryValue::Integer(value, 32) => i64::from(*value as i32) as u64,
        EmissaryValue::Integer(value, _) | EmissaryValue::Address(value) => *value,
        EmissaryValue::Float(value) => value.to_bits(),
        EmissaryValue::Text(_) => place as u64 + 1,
        EmissaryValue::Memory(_) => 0,
    };
    let block: Vec<u8> = arguments.iter().enumerate().map(word).flat_map(u64::to_le_bytes).collect();
    let text = |place: u64| match place.checked_sub(1) {
        None => Some(None),
        Some(place) => match arguments.get(usize::try_from(place).ok()?)? {
            EmissaryValue::Text(text) => Some(Some(text)),
            _ => None,
        },
    };
    let strings = format.strings(Layout::Words, &block).ok()?;
    let strings: Vec<_> = strings.into_iter().map(text).collect::<Option<_>>()?;
    format.render(Layout::Words, &block, &strings, line).ok()
}
