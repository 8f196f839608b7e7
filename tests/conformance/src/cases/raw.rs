use crate::context::read;
use crate::{Context, Outcome, Session, echo, ensure, same};
use conformance::mix;
use conformance::raw::{
    self, Step, Triple, byte_len, raw_apart, raw_batches, raw_bytes, raw_dropped, raw_for_ever,
    raw_overwritten, raw_panics, raw_seen, raw_steps,
};
use hostcall::graph::CaptureMode;
use hostcall::raw::{
    Block, DropNewest, OverwriteOldest, Placement, Policy, RawChannel, RawPage, RawReader, RawStaging,
};
use hostcall::trace::{Event, Reader, RecordPrinter, Streams};
use hostcall::{Error, Grid, Plain};
use std::collections::HashMap;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

fn text(error: Error) -> String {
    error.to_string()
}

fn open(context: &Context) -> Result<Session, String> {
    context.open(|device| device.inline_service(echo()))
}

fn channel<T: Plain, P: Policy>(
    session: &Session,
    placement: Placement,
    pages: u32,
    page_bytes: u32,
) -> Result<RawChannel<T, P>, String> {
    RawChannel::placed(&session.device, placement, pages, page_bytes).map_err(text)
}

/// Pages for all waves of small grids.
fn many(session: &Session) -> u32 {
    (2 * session.device.properties().resident_waves).clamp(64, 1 << 14).next_power_of_two()
}

/// Steps of lanes, each lane's in order.
#[derive(Default)]
struct Steps(HashMap<u32, u32>);

impl Steps {
    fn add(&mut self, page: &RawPage<Step>) -> Outcome {
        for step in page.records() {
            let next = self.0.entry(step.lane).or_default();
            same!(step, Step::new(step.lane as usize, *next));
            *next += 1;
        }
        Ok(())
    }

    fn read(&mut self, reader: &RawReader<Step>) -> Outcome {
        reader.rest().try_for_each(|page| self.add(&page))
    }
}

/// Records of whole waves, read while the kernel runs: there are far fewer pages than it fills.
pub fn records(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel(&session, placement, 64, 256)?;
    let reader = channel.reader();
    for (grid, steps) in [(Grid::new(3, 100), 60), (Grid::new(20, 1), 100), (Grid::new(2, 33), 1)] {
        let (stream, mut seen) = (session.stream()?, Steps::default());
        let launch = session.launch(&stream, raw_steps, grid, (steps, &channel))?;
        while !launch.is_done() {
            if let Some(page) = reader.next_within(Duration::from_millis(5)) {
                seen.add(&page)?;
            }
        }
        stream.synchronize().map_err(text)?;
        seen.read(&reader)?;
        let lanes = grid.workgroups[0] * grid.workgroup_size[0];
        same!(seen.0.len() as u32, lanes);
        ensure!(seen.0.values().all(|count| *count == steps));
    }
    let statistics = channel.statistics();
    same!(statistics.bytes, (300 * 60 + 20 * 100 + 66) * 16);
    same!((statistics.dropped_records, statistics.swept_pages, statistics.malformed_words), (0, 0, 0));
    let RawStaging { searches, batches, copies, .. } = statistics.staging;
    match placement {
        Placement::Direct => same!(statistics.staging, RawStaging::default()),
        Placement::Staged => ensure!(searches > 0 && batches > 0 && copies >= batches),
    }
    Ok(())
}

/// Lanes that go their own ways, and call the host between two records.
pub fn apart(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel(&session, placement, 64, 1024)?;
    let (reader, grid) = (channel.reader(), Grid::new(2, 70));
    let (stream, mut seen) = (session.stream()?, Steps::default());
    session.launch(&stream, raw_apart, grid, (20, &channel))?;
    stream.synchronize().map_err(text)?;
    seen.read(&reader)?;
    let wave_size = session.device.wave_size();
    for lane in 0..140 {
        same!(
            (lane, seen.0.get(&lane)),
            (lane, Some(&(20 + u32::from((lane % 70).is_multiple_of(wave_size)))))
        );
    }
    Ok(())
}

/// Batches that go over pages, of records that do not fill them, to two channels in turn.
pub fn batches(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let triples = channel::<Triple, Block>(&session, placement, 1024, 128)?;
    let numbers = channel::<u64, Block>(&session, placement, 1024, 512)?;
    let wave_size = session.device.wave_size();
    // Lanes that were delayed come apart, and each part of a wave writes batches of its own.
    let is_apart = context.faults.delay_lanes > 0.0;
    let counts: u32 = if is_apart { 10 } else { 30 };
    let all = u64::from(counts * (counts - 1) / 2);
    // A part of a wave too.
    for lanes in [2 * wave_size, wave_size + (wave_size / 2).max(1)] {
        session.run(raw_batches, Grid::new(1, lanes), (counts, &triples, &numbers))?;
        let mut seen = [Vec::new(), Vec::new()];
        for page in triples.reader().rest() {
            for Triple([wave, i, check]) in page.records() {
                same!((page.writer().wave, check), (wave as u32, mix(i)));
                seen[wave as usize].push(i);
            }
        }
        let mut others = [Vec::new(), Vec::new()];
        for page in numbers.reader().rest() {
            others[page.writer().wave as usize].extend(page.records());
        }
        for mut seen in seen.into_iter().chain(others) {
            if is_apart {
                seen.sort_unstable();
                seen.dedup();
            }
            ensure!(seen.into_iter().eq(0..all));
        }
    }
    Ok(())
}

/// Bytes of every lane, one lane's after the other's, filled up to words.
/// A recording says what its records consist of, and programs that do not have the type show them.
pub fn described(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel::<Step, Block>(&session, placement, many(&session), 256)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("steps.trace");
    let recording = channel.record(&path, "steps").map_err(|error| error.to_string())?;
    let lanes = 70;
    session.run(raw_steps, Grid::new(2, lanes / 2), (3, &channel))?;
    recording.finish().map_err(|error| error.to_string())?;
    let file = std::fs::File::open(&path).map_err(|error| error.to_string())?;
    let (mut streams, mut printer, mut seen) = (Streams::default(), None, Vec::new());
    for event in Reader::new(file).map_err(|error| error.to_string())? {
        let event = event.map_err(|error| error.to_string())?;
        streams.note(&event);
        let Event::Page(page) = event else { continue };
        let stream = streams.get(page.stream).ok_or("a page comes before its stream")?;
        let descriptor = stream.descriptor.clone().ok_or("the recording says what a step is")?;
        let columns = descriptor.columns.iter();
        let columns: Vec<_> = columns.map(|it| (&*it.name, it.number.name(), &*it.unit)).collect();
        same!(columns, [("lane", "u32", ""), ("step", "u32", "steps"), ("check", "u64", "")]);
        let printer = printer.get_or_insert_with(|| RecordPrinter::new(descriptor.clone()));
        for record in page.bytes.chunks_exact(stream.record_bytes as usize) {
            let mut line = Vec::new();
            printer.print(record, &mut line);
            seen.push(String::from_utf8(line).map_err(|error| error.to_string())?);
        }
    }
    let steps = (0..lanes).flat_map(|lane| (0..3).map(move |step| Step::new(lane as usize, step)));
    let mut expected: Vec<_> = steps
        .map(|Step { lane, step, check }| format!("lane {lane:>5}, step {step}: {check:#018x}"))
        .collect();
    seen.sort();
    expected.sort();
    same!(seen, expected);
    Ok(())
}

pub fn bytes(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel::<u8, Block>(&session, placement, 4096, 256)?;
    let data: Vec<u8> = (0..700u64).map(|i| mix(i) as u8).collect();
    let buffer = session.device.upload(&data).map_err(text)?;
    let lanes = session.device.wave_size() / 2 + 1;
    session.run(raw_bytes, Grid::new(1, lanes), (9, &buffer, &channel))?;
    let mut seen = Vec::new();
    channel.reader().rest().for_each(|page| page.append_to(&mut seen));
    let mut expected = Vec::new();
    for round in 0..9 {
        for lane in 0..lanes as usize {
            expected.extend(&data[..byte_len(lane, round, data.len())]);
            expected.resize(expected.len().next_multiple_of(8), 0);
        }
    }
    if context.faults.delay_lanes > 0.0 {
        // Lanes that were delayed come apart, and write in another order.
        seen.as_chunks_mut::<8>().0.sort_unstable();
        expected.as_chunks_mut::<8>().0.sort_unstable();
    }
    ensure!(seen == expected);
    Ok(())
}

/// Nobody reads: what finds no page is dropped, and counted to the record.
pub fn dropped(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel::<Step, DropNewest>(&session, placement, 16, 256)?;
    let (reader, grid, steps) = (channel.reader(), Grid::new(3, 64), 100);
    let mut seen = Vec::new();
    for round in 0..3 {
        let kept = session.out(grid, 1)?;
        session.run(raw_dropped, grid, (steps, &channel, &kept))?;
        let before = seen.len() as u64;
        let mut dropped = 0;
        for page in reader.rest() {
            seen.extend(page.records());
            dropped += page.dropped_before();
        }
        let kept_of_lanes: u64 = read(&kept)?.iter().sum();
        let now = seen.len() as u64 - before;
        // A batch of a wave's records may be kept in part.
        ensure!(kept_of_lanes <= now && now > 0);
        let statistics = channel.statistics();
        same!(
            (round, statistics.dropped_records + seen.len() as u64),
            (round, (round + 1) * 192 * u64::from(steps))
        );
        ensure!(dropped <= statistics.dropped_records);
    }
    ensure!(seen.iter().all(|step| *step == Step::new(step.lane as usize, step.step)));
    Ok(())
}

/// Nobody reads: the newest are there at the end, and what is not there was counted.
pub fn overwritten(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel::<Step, OverwriteOldest>(&session, placement, 64, 256)?;
    let (grid, steps) = (Grid::new(4, 32), 200u32);
    session.run(raw_overwritten, grid, (steps, &channel))?;
    let reader = channel.reader();
    let (mut seen, mut overwritten, mut last) = (0, 0, HashMap::<u32, u32>::new());
    for (i, page) in reader.rest().enumerate() {
        if i % 4 == 0 {
            // Whoever keeps pages free looks meanwhile, and overwrites nothing any more.
            std::thread::sleep(Duration::from_millis(2));
        }
        overwritten += page.overwritten_before();
        for step in page.records() {
            same!(step, Step::new(step.lane as usize, step.step));
            let before = last.insert(step.lane, step.step);
            ensure!(before.is_none_or(|before| before + 1 == step.step));
            seen += 1;
        }
    }
    same!(16 * seen + overwritten, 128 * u64::from(steps) * 16);
    same!(overwritten, channel.statistics().overwritten_bytes);
    // The grid's last record is in the page that was closed last.
    ensure!(last.values().any(|step| *step == steps - 1));
    Ok(())
}

/// The host sees what lies in half-filled pages, while the waves that wrote it wait for that.
pub fn while_running(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel::<u64, Block>(&session, placement, 64, 4096)?;
    let reader = channel.reader();
    let seen = session.device.pinned::<u64>(3).map_err(text)?;
    let stream = session.stream()?;
    session.launch(&stream, raw_seen, Grid::new(3, 4), (&channel, &seen))?;
    for _ in 0..6 {
        let page = reader.next_within(WAIT).ok_or("nothing was seen of a half-filled page")?;
        for word in page.records() {
            let workgroup = word as u32 as usize;
            same!(seen[workgroup].get(), word >> 32);
            seen[workgroup].set(seen[workgroup].get() + 1);
        }
        if seen.iter().all(|seen| seen.get() == 2) {
            break;
        }
    }
    stream.synchronize().map_err(text)
}

/// Launches that are cancelled and lanes that panic leave what they wrote, and their pages come back.
pub fn killed(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel::<u64, Block>(&session, placement, many(&session), 128)?;
    let reader = channel.reader();
    for _ in 0..8 {
        let stream = session.stream()?;
        let launch = session.launch(&stream, raw_for_ever, Grid::new(2, 40), (&channel,))?;
        let mut pages = 0;
        while pages < 50 {
            let page = reader.next_within(WAIT).ok_or("the kernel has stopped writing")?;
            ensure!(page.records().all(|word| word == 1 || word == 2));
            pages += 1;
        }
        launch.cancel();
        ensure!(stream.synchronize().is_err());
        ensure!(reader.rest().all(|page| page.records().all(|word| word == 1 || word == 2)));
        let outcome = session.try_run(raw_panics, Grid::new(2, 40), (&channel,))?;
        ensure!(outcome.is_err());
        // All are read: the next launch's come behind them.
        let left: Vec<u64> = reader.rest().flat_map(|page| page.records().collect::<Vec<_>>()).collect();
        ensure!(left.contains(&3) && left.iter().all(|word| *word == 3));
    }
    // All pages can be written again.
    drop(reader);
    same!(channel.statistics().malformed_words, 0);
    Ok(())
}

/// A kernel waits for nobody whose reader is gone, and graphs write as launches do.
pub fn readers_and_graphs(context: &Context, placement: Placement) -> Outcome {
    let session = open(context)?;
    let channel = channel::<Step, Block>(&session, placement, many(&session), 512)?;
    let (reader, grid) = (channel.reader(), Grid::new(2, 40));
    let stream = session.stream()?;
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |stream| {
            session.launch(stream, raw_steps, grid, (5, &channel)).map_err(|_| Error::Closed)?;
            session.launch(stream, raw_steps, grid, (5, &channel)).map_err(|_| Error::Closed).map(drop)
        })
        .map_err(text)?;
    let instance = graph.instantiate().map_err(text)?;
    for _ in 0..3 {
        instance.launch(&stream).map_err(text)?;
        stream.synchronize().map_err(text)?;
        same!(reader.rest().map(|page| page.records().len()).sum::<usize>(), 2 * 80 * 5);
    }
    let sizes = RawChannel::<u64, Block>::placed(&session.device, placement, 60, 4096).err().map(text);
    ensure!(sizes.is_some_and(|error| error.contains("60 pages of 4096 bytes: take powers of two")));
    // The launch alone has the channel then, and drops what finds no page.
    let few = RawChannel::<u64, Block>::placed(&session.device, placement, 16, 128).map_err(text)?;
    let launch = session.launch(&stream, raw::raw_until_dropped, Grid::new(2, 40), (&few,))?;
    drop(few);
    stream.synchronize().map_err(text)?;
    ensure!(launch.is_done());
    Ok(())
}
