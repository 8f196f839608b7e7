//! `hostcall trace dump`: a trace's events as lines.

use super::{NO_END, Stop, device, events, open};
use hostcall_trace::{
    Ending, Event, Names, Page, Point, PointKind, RecordPrinter, StreamTotals, Streams, UNKNOWN, Waiting,
    escaped,
};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

pub(super) fn dump(path: &Path, out: &mut dyn Write) -> Result<(), Stop> {
    let mut reader = open(path)?;
    let mut records = Records::default();
    events(path, &mut reader, |names, event| {
        records.streams.note(event);
        match event {
            Event::Page(page) => records.print(out, page),
            event => line(out, names, event),
        }
    })?;
    match reader.is_complete() {
        true => Ok(()),
        false => Ok(writeln!(out, "{NO_END}")?),
    }
}

/// Prints an event as a line that begins with its time in seconds, if it has one.
fn line(out: &mut dyn Write, names: &Names, event: &Event) -> io::Result<()> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let device = |source| device(names, source);
    let method = |method| escaped(names.method(method).map_or("?", |method| &*method.name));
    match event {
        Event::Source { source, device, protocol } => {
            writeln!(out, "source {source}: device {}, protocol {}", escaped(device), escaped(protocol))
        }
        Event::Method { method, number, name } => {
            writeln!(out, "method {method}: {}, number {number}", escaped(name))
        }
        Event::LaunchBegan { launch, source, at_ns, workgroups: [x, y, z], kernel, .. } => {
            let (at, device, kernel) = (seconds(*at_ns), device(*source), escaped(kernel));
            writeln!(out, "{at:.9} launch {launch} began on {device}: {kernel}, workgroups {x},{y},{z}")
        }
        Event::LaunchEnded { launch, at_ns, ending: Ending::OK } => {
            writeln!(out, "{:.9} launch {launch} ended", seconds(*at_ns))
        }
        Event::LaunchEnded { launch, at_ns, ending } => {
            writeln!(out, "{:.9} launch {launch} ended: {}", seconds(*at_ns), ending.name())
        }
        Event::Call(call) => {
            let (at, device, method) = (seconds(call.picked_up_ns), device(call.source), method(call.method));
            write!(out, "{at:.9} {device} {method}:")?;
            if let Some(launch) = names.launch(call.launch) {
                write!(out, " launch {} {},", call.launch, escaped(&launch.kernel))?;
            }
            if call.workgroup != UNKNOWN {
                write!(out, " workgroup {} wave {},", call.workgroup, call.wave)?;
            }
            let since = |ns: u64| ns.saturating_sub(call.picked_up_ns);
            let [began, ended, replied] =
                [call.handler_began_ns, call.handler_ended_ns, call.replied_ns].map(since);
            write!(
                out,
                " slot {}, {} lanes; handler {began} to {ended} ns, answered {replied} ns; {} bytes, reply {} bytes",
                call.slot, call.lanes, call.request_bytes, call.reply_bytes
            )?;
            match call.failed_lanes {
                0 => writeln!(out),
                failed => writeln!(out, "; {failed} lanes: {}", call.status),
            }
        }
        Event::Posts(posts) => {
            let (from, until) = (seconds(posts.from_ns), seconds(posts.until_ns));
            let (device, method) = (device(posts.source), method(posts.method));
            writeln!(out, "{from:.9} {device} {method}: {} posts until {until:.9}", posts.count)
        }
        Event::Stream { stream, record_bytes, schema, name, policy, descriptor } => {
            let (name, policy) = (escaped(name), escaped(policy));
            write!(
                out,
                "stream {stream}: {name}, records of {record_bytes} bytes, schema {schema:016x}, policy {policy}"
            )?;
            let Some(descriptor) = descriptor else { return writeln!(out) };
            write!(out, "; {} {{", escaped(&descriptor.name))?;
            for (i, column) in descriptor.columns.iter().enumerate() {
                let (comma, number) = (if i == 0 { " " } else { ", " }, column.number.name());
                write!(out, "{comma}{}: {number}", escaped(&column.name))?;
                if !column.unit.is_empty() {
                    write!(out, " in {}", escaped(&column.unit))?;
                }
            }
            writeln!(out, " }}")
        }
        Event::StreamEnded { stream, totals } => {
            let StreamTotals { pages, bytes, dropped_records, overwritten_bytes, lost_bytes } = totals;
            write!(
                out,
                "stream {stream} ended: {pages} pages, {bytes} bytes, {dropped_records} records dropped, \
                 {overwritten_bytes} bytes overwritten"
            )?;
            match lost_bytes {
                0 => writeln!(out),
                lost => writeln!(out, ", {lost} bytes lost"),
            }
        }
        Event::Waiting(waiting) => {
            let Waiting { at_ns, waited_ns, launch, slot, place, lanes, source, waits_for, method } = waiting;
            write!(out, "{:.9} {} {}:", seconds(*at_ns), device(*source), escaped(method))?;
            if let Some(of) = names.launch(*launch) {
                write!(out, " launch {launch} {},", escaped(&of.kernel))?;
            }
            if let Some(([x, y, z], wave)) = place {
                write!(out, " workgroup ({x}, {y}, {z}) wave {wave},")?;
            }
            writeln!(
                out,
                " slot {slot}, {lanes} lanes have waited for {waits_for} for {:.1} s",
                seconds(*waited_ns)
            )
        }
        Event::NamedPoint { source, point, kind, line, file, text, .. } => {
            let kind = match kind {
                PointKind::Begin | PointKind::End => "span",
                PointKind::Counter => "counter",
                PointKind::Event => "event",
            };
            let file = escaped(file);
            writeln!(out, "trace point {point} of source {source}: {kind} {text:?}, {file}:{line}")
        }
        Event::Point(point) => point_line(out, names, point),
        Event::PointsLost { source, records } => {
            writeln!(out, "{} {records} records of trace points were lost here", device(*source))
        }
        Event::Clock(pair) => {
            writeln!(
                out,
                "{:.9} {} showed {:.9} on its clock, ±{} ns; its times were {} ns off, {} ppb slow",
                seconds(pair.host_ns),
                device(pair.source),
                seconds(pair.device_ns),
                pair.error_ns,
                pair.off_ns,
                pair.drift_ppb
            )
        }
        Event::Dropped(calls) => writeln!(out, "{calls} calls were dropped here: they came too fast"),
        Event::Missing(blocks) => writeln!(out, "{blocks} blocks are missing here"),
        Event::Damaged(bytes) => writeln!(out, "{bytes} bytes are damaged here"),
        Event::Ended(totals) => {
            writeln!(out, "{:.9} the trace ended, {} calls", seconds(totals.ended_ns), totals.calls)
        }
        _ => Ok(()),
    }
}

/// Prints what a trace point said as a line.
fn point_line(out: &mut dyn Write, names: &Names, point: &Point) -> io::Result<()> {
    let device = device(names, point.source);
    write!(out, "{:.9} {device}", point.at_ns as f64 / 1e9)?;
    if let Some(launch) = names.launch(point.launch) {
        write!(out, " launch {} {},", point.launch, escaped(&launch.kernel))?;
    }
    write!(
        out,
        " workgroup {} wave {}, slot {}, {} lanes from {}:",
        point.workgroup, point.wave, point.slot, point.lanes, point.first_lane
    )?;
    let Some(name) = names.point(point.source, point.point) else {
        return writeln!(out, " trace point {} {:x?}", point.point, point.values);
    };
    let mut text = Vec::new();
    name.print(point, &mut text);
    let text = String::from_utf8_lossy(&text);
    let (name, text) = (escaped(&name.text), escaped(&text));
    match point.kind {
        PointKind::Begin => writeln!(out, " {name} begins"),
        PointKind::End => {
            writeln!(out, " {name} ends after {} ns", point.at_ns.saturating_sub(point.began_ns))
        }
        PointKind::Counter => writeln!(out, " {name} = {text}"),
        PointKind::Event => writeln!(out, " {text}"),
    }
}

/// Prints pages with their records.
#[derive(Default)]
struct Records {
    streams: Streams,
    printers: BTreeMap<u16, RecordPrinter>,
    text: Vec<u8>,
}

impl Records {
    /// Prints a page as a line, and its records, one a line; or its words, four a line, where it is not known
    /// what they are.
    fn print(&mut self, out: &mut dyn Write, page: &Page) -> io::Result<()> {
        print_page(out, page)?;
        let stream = self.streams.get(page.stream);
        if stream.is_some_and(|stream| stream.record_bytes == 1) {
            return print_bytes(out, page);
        }
        let Some((stream, descriptor)) = stream.and_then(|stream| Some((stream, stream.descriptor.clone()?)))
        else {
            return print_words(out, &page.bytes);
        };
        let printer = self.printers.entry(page.stream).or_insert_with(|| RecordPrinter::new(descriptor));
        for record in page.bytes.chunks_exact(stream.record_bytes as usize) {
            self.text.clear();
            printer.print(record, &mut self.text);
            writeln!(out, "  {}", escaped(&String::from_utf8_lossy(&self.text)))?;
        }
        Ok(())
    }
}

/// Prints what is said of a page as a line.
fn print_page(out: &mut dyn Write, page: &Page) -> io::Result<()> {
    let Page { stream, sequence, offset_bytes, slot, workgroup, wave, opened_ns, .. } = page;
    write!(out, "stream {stream} page {sequence}, opened {:.9} on the device,", *opened_ns as f64 / 1e9)?;
    write!(
        out,
        " workgroup {workgroup} wave {wave}, slot {slot}: {} bytes from {offset_bytes}",
        page.bytes.len()
    )?;
    if page.dropped_before > 0 {
        write!(out, "; {} records were dropped before", page.dropped_before)?;
    }
    if page.overwritten_before > 0 {
        write!(out, "; {} bytes were overwritten before", page.overwritten_before)?;
    }
    writeln!(out)
}

/// Prints bytes in their order, 16 a line, with the text that they may be.
fn print_bytes(out: &mut dyn Write, page: &Page) -> io::Result<()> {
    for (line, at) in page.bytes.chunks(16).zip((u64::from(page.offset_bytes)..).step_by(16)) {
        write!(out, "  {at:06x}:")?;
        for place in 0..16 {
            match line.get(place) {
                Some(byte) => write!(out, " {byte:02x}")?,
                None => write!(out, "   ")?,
            }
        }
        let text = line.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        writeln!(out, "  {}", text.collect::<String>())?;
    }
    Ok(())
}

/// Prints words, four a line.
fn print_words(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    for line in bytes.chunks(32) {
        write!(out, " ")?;
        for word in line.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            write!(out, " {:016x}", u64::from_le_bytes(whole))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
