//! The body of the fuzz target `trace_file`: bytes are a trace file, whose checksums are made right where the first byte says
//! so, so that what blocks say reaches who reads it. Whatever a file says, it is read to its end, cut where the next two bytes
//! say it is read up to there, and exports end.

use hostcall_trace::export::{Format, Table, export};
use hostcall_trace::{Event, Latencies, Names, OpenError, Reader, RecordPrinter, Streams};
use std::io::{self, Write};

/// Bytes of the file's header, and of a block's; where in it a block says how long its payload is.
const FILE_HEADER_BYTES: usize = 36;
const BLOCK_HEADER_BYTES: usize = 40;
const PAYLOAD_BYTES_AT: usize = 8;
const BLOCK: &[u8; 4] = b"HcBk";

/// Most bytes that an export of one input may write: texts of names and formats are repeated in each row.
const MOST_WRITTEN: usize = 16 << 20;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some(([how, low, high], file)) = data.split_first_chunk() else { return };
    let mut file = file.to_vec();
    if how & 1 == 0 {
        mend(&mut file);
    }
    let whole = read(&file);
    let cut = usize::from(u16::from_le_bytes([*low, *high])) % (file.len() + 1);
    if let (Some(whole), Some(part)) = (&whole, read(&file[..cut])) {
        // What was skipped up to the cut may be less than what was skipped in all.
        let part = part.strip_suffix(&[last_damage(&part)]).unwrap_or(&part);
        assert!(whole.starts_with(part), "a cut file is read up to the cut");
    }
    let Some(events) = whole else { return };
    use_events(&events);
    let table = match events
        .iter()
        .find_map(|event| if let Event::Stream { name, .. } = event { Some(name) } else { None })
    {
        Some(name) if how & 2 != 0 => Table::Stream(name),
        _ => Table::First,
    };
    let (_, format) = Format::ENDINGS[usize::from(how >> 2 & 3)];
    let mut reader = Reader::new(&file[..]).expect("it was opened before");
    // A table that the file has not, or too much of it, is an error.
    let _ = export(&mut reader, table, format, Bounded(0), |_| ());
}

/// Makes the checksums of the header and of all blocks right that begin where the one before ends.
pub fn mend(file: &mut [u8]) {
    let Some(header) = file.get_mut(..FILE_HEADER_BYTES) else { return };
    put_checksum(header);
    let text_bytes = u32::from_le_bytes(*header[20..].first_chunk().expect("the header has it"));
    let mut at = FILE_HEADER_BYTES.saturating_add(text_bytes as usize);
    while let Some(header) = file.get(at..).and_then(|rest| rest.get(..BLOCK_HEADER_BYTES)) {
        if !header.starts_with(BLOCK) {
            // Where the next one may be, after bytes that are no block.
            at += 1;
            continue;
        }
        let bytes = u32::from_le_bytes(*header[PAYLOAD_BYTES_AT..].first_chunk().expect("the header has it"));
        let (begin, end) =
            (at + BLOCK_HEADER_BYTES, (at + BLOCK_HEADER_BYTES).saturating_add(bytes as usize));
        let Some(payload) = file.get(begin..end) else { return };
        let crc = crc32fast::hash(payload).to_le_bytes();
        let header = &mut file[at..begin];
        header[BLOCK_HEADER_BYTES - 8..BLOCK_HEADER_BYTES - 4].copy_from_slice(&crc);
        put_checksum(header);
        at = end;
    }
}

/// Puts the checksum of what is before behind it.
fn put_checksum(header: &mut [u8]) {
    let (checked, crc) = header.split_at_mut(header.len() - 4);
    crc.copy_from_slice(&crc32fast::hash(checked).to_le_bytes());
}

/// Reads all events, if it is a trace.
fn read(file: &[u8]) -> Option<Vec<Event>> {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(OpenError::Io(error)) => panic!("memory is read without errors: {error}"),
        Err(_) => return None,
    };
    let events: Vec<_> = reader.by_ref().map(|event| event.expect("memory is read without errors")).collect();
    assert!(reader.bytes_read() <= file.len() as u64 && reader.next().is_none());
    Some(events)
}

fn last_damage(events: &[Event]) -> Event {
    match events.last() {
        Some(event @ Event::Damaged(_)) => event.clone(),
        // There is no such event.
        _ => Event::Damaged(u64::MAX),
    }
}

/// What `hostcall trace info`, `dump` and `top` do with events.
fn use_events(events: &[Event]) {
    let (mut names, mut streams, mut latencies) =
        (Names::default(), Streams::default(), Latencies::default());
    let mut text = Vec::new();
    for event in events {
        names.note(event);
        streams.note(event);
        match event {
            Event::Call(call) => latencies.add(&names, call),
            Event::Posts(posts) => latencies.add_posts(posts),
            Event::Point(point) => {
                if let Some(name) = names.point(point.source, point.point) {
                    name.print(point, &mut text);
                    name.value(point);
                }
            }
            Event::Page(page) => {
                let Some(stream) = streams.get(page.stream) else { continue };
                let Some(mut printer) = stream.descriptor.clone().map(RecordPrinter::new) else { continue };
                for record in page.bytes.chunks_exact(stream.record_bytes.max(1) as usize).take(100) {
                    printer.print(record, &mut text);
                }
            }
            _ => {}
        }
        text.truncate(1 << 10);
    }
    let _ = latencies.table(&names);
}

/// Takes so many bytes.
struct Bounded(usize);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        if self.0 > MOST_WRITTEN { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
