//! Posts to a post queue that this thread polls, beside one queue for all lanes: what MSCCL++'s proxies poll, written anew from
//! its published design. A lane takes its place from a counter by an atomic addition and stores a trigger of 16 bytes with
//! release order; the host waits for a word that is not 0, clears it, and says now and then how far it is.
#![allow(unsafe_code, reason = "launches kernels of another compiler")]

use crate::contexts::compile;
use crate::median;
use crate::run::{Bed, Options, Result, Row, until};
use hostcall::Grid;
use hostcall::device::{PinnedBuffer, PostQueue, PostQueueSizes};
use hostcall::hostcall_device::Global;
use hostcall::rocm::{CodeObject, KernelArgument, Version};
use std::time::Instant;

/// Triggers of the rival's queue.
const ENTRIES: usize = 1 << 16;

/// Triggers after which the device is told how far the host is.
const TELL: u64 = 256;

/// What is measured.
struct Queues {
    bed: Bed,
    code: CodeObject,
    queue: PostQueue,
    /// The rival's triggers.
    triggers: PinnedBuffer<u64>,
}

/// What the kernels of a run do.
#[derive(Clone, Copy)]
struct Run {
    kernel: &'static str,
    grid: Grid,
    count: u64,
}

impl Run {
    fn lanes(&self) -> u64 {
        self.grid.workgroups.iter().chain(&self.grid.workgroup_size).map(|n| u64::from(*n)).product()
    }

    fn posts(&self) -> u64 {
        self.lanes() * self.count
    }

    fn check(&self, sum: u64) -> Result<()> {
        if sum != self.lanes() * (self.count * (self.count + 1) / 2) {
            return Err(format!("{}: posts were lost or changed", self.kernel).into());
        }
        Ok(())
    }
}

impl Queues {
    fn launch(&self, run: Run, arguments: &[KernelArgument]) -> Result<()> {
        // SAFETY: these are what the kernel of `queues.cu` takes, with memory of this device that lives until it has ended.
        unsafe { self.code.kernel(run.kernel)?.launch(self.bed.stream(), run.grid, arguments) }?;
        Ok(())
    }

    /// Takes all posts of a run, each of which `take` gets. Returns the time in s.
    fn polled(&self, run: Run, more: &[KernelArgument], mut take: impl FnMut(u64)) -> Result<f64> {
        let lost = self.bed.device.alloc_zeroed::<u64>(run.lanes() as usize)?;
        let mut arguments = vec![
            KernelArgument::post_queue(&self.queue),
            KernelArgument::buffer(&lost),
            KernelArgument::value(run.count),
        ];
        arguments.extend_from_slice(more);
        let (mut posts, mut sum, mut failed) = (0, 0u64, None);
        let start = Instant::now();
        self.launch(run, &arguments)?;
        until(|| {
            let polled = self.queue.poll(usize::MAX, |batch| {
                for post in batch.words().chunks_exact(batch.words_each().max(1)) {
                    sum = sum.wrapping_add(post[0]);
                    take(post[0]);
                }
            });
            match polled {
                Ok(taken) => posts += taken as u64,
                Err(error) => failed = Some(error),
            }
            posts == run.posts() || failed.is_some()
        })?;
        failed.map_or(Ok(()), Err)?;
        self.bed.synchronize()?;
        let time = start.elapsed().as_secs_f64();
        run.check(sum)?;
        if lost.read()?.iter().any(|lost| *lost != 0) {
            return Err(format!("{}: posts were refused", run.kernel).into());
        }
        Ok(time)
    }

    /// The same through the rival's queue.
    fn of_rival(&self, run: Run, more: &[KernelArgument], mut take: impl FnMut(u64)) -> Result<f64> {
        let (heads, tail) = (self.bed.device.alloc_zeroed::<u64>(2)?, self.bed.device.pinned::<u64>(8)?);
        let mut arguments = vec![
            KernelArgument::pinned(&self.triggers),
            KernelArgument::value(ENTRIES as u64),
            KernelArgument::buffer(&heads),
            KernelArgument::pinned(&tail),
            KernelArgument::value(run.count),
        ];
        arguments.extend_from_slice(more);
        let (triggers, tail): (&[Global<u64>], &Global<u64>) = (&self.triggers, &tail[0]);
        let triggers: &[[Global<u64>; 2]; ENTRIES] = triggers.as_chunks::<2>().0.try_into()?;
        let (mut at, mut sum) = (0u64, 0u64);
        let start = Instant::now();
        self.launch(run, &arguments)?;
        until(|| {
            while at < run.posts() {
                let trigger = &triggers[at as usize % ENTRIES];
                let (first, second) = (trigger[0].get(), trigger[1].get());
                // Stores of 16 bytes may come in two parts.
                if first == 0 || second == 0 {
                    break;
                }
                trigger[0].set(0);
                trigger[1].set(0);
                sum = sum.wrapping_add(first);
                take(first);
                at += 1;
                if at.is_multiple_of(TELL) {
                    tail.set(at);
                }
            }
            at == run.posts()
        })?;
        self.bed.synchronize()?;
        let time = start.elapsed().as_secs_f64();
        run.check(sum)?;
        Ok(time)
    }
}

/// Posts to a queue. Each figure's floor is the rival's in the same run.
pub fn queues(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let Some(code) = compile(&bed, options, "queues.cu", include_str!("queues.cu"))? else {
        return Ok(Vec::new());
    };
    let code = bed.device.load_code_object_bytes(&code, Version::Stacks)?;
    let queue = bed.device.post_queue("bench", PostQueueSizes::default())?;
    let triggers = bed.device.pinned::<u64>(2 * ENTRIES)?;
    let wave = bed.device.wave_size();
    let queues = Queues { bed, code, queue, triggers };
    let mut rows = Vec::new();

    let mut rate = |name, kernel, grid, count, has_rival| -> Result<()> {
        let run = Run { kernel, grid, count };
        let rival = Run { kernel: "fifo", ..run };
        queues.polled(Run { count: count / 10, ..run }, &[], drop)?;
        let (mut own, mut others) = (vec![], vec![]);
        for _ in 0..options.repeats {
            own.push(run.posts() as f64 / queues.polled(run, &[], drop)?);
            if has_rival {
                others.push(run.posts() as f64 / queues.of_rival(rival, &[], drop)?);
            }
        }
        rows.push(Row::rate(name, "posts/s", median(own), has_rival.then(|| median(others))));
        Ok(())
    };
    let (waves, one_wave, one) = (Grid::new(132, wave), Grid::new(1, wave), Grid::new(1, 1));
    rate("queue_posts_per_s", "messages_1", waves, 10_000, true)?;
    rate("queue_posts_per_s_1_wave", "messages_1", one_wave, 100_000, true)?;
    rate("queue_posts_per_s_1_lane", "messages_1", one, 200_000, true)?;
    rate("queue_posts_claimed_per_s", "messages_claimed", waves, 5_000, true)?;
    rate("queue_posts_claimed_per_s_1_lane", "messages_claimed", one, 50_000, true)?;
    rate("queue_posts_16_bytes_per_s", "messages_2", waves, 10_000, true)?;
    rate("queue_posts_16_bytes_per_s_1_lane", "messages_2", one, 200_000, true)?;
    rate("queue_posts_32_bytes_per_s", "messages_4", waves, 5_000, false)?;
    rate("queue_posts_128_bytes_per_s", "messages_16", waves, 2_000, false)?;
    rate("queue_posts_128_bytes_per_s_1_lane", "messages_16", one, 50_000, false)?;

    const TURNS: u64 = 20_000;
    let turns = Run { kernel: "message_turns", grid: one, count: TURNS };
    let (mut own, mut others) = (vec![], vec![]);
    for _ in 0..options.repeats {
        for is_rival in [false, true] {
            let signal = queues.bed.device.pinned::<u64>(8)?;
            let more = [KernelArgument::pinned(&signal)];
            let answer = |number| signal[0].set(number);
            let ns = |time: f64| time * 1e9 / TURNS as f64;
            match is_rival {
                false => own.push(ns(queues.polled(turns, &more, answer)?)),
                true => {
                    let rival = Run { kernel: "fifo_turns", ..turns };
                    others.push(ns(queues.of_rival(rival, &more, answer)?));
                }
            }
        }
    }
    rows.push(Row::time("queue_turn", "ns", median(own), Some(median(others))));
    Ok(rows)
}
