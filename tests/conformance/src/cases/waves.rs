use crate::context::{done, read};
use crate::{Context, Outcome, echo, ensure, same};
use conformance::waves::{
    WORDS, numbers, wave_numbers, wave_operations, wave_reduction, wave_spinning, wave_spinning_for_ever,
};
use hostcall::device::SoftwareDeviceConfig;
use hostcall::{Error, Grid, LaunchFailure};
use std::time::Duration;

pub fn operations(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for lanes in [1, 31, 64, 100, 256] {
        session.all_done(wave_operations, Grid::new(3, lanes))?;
    }
    Ok(())
}

pub fn reduction(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for lanes in [1u32, 2, 33, 100, 1024] {
        let grid = Grid::new(3, lanes);
        let out = session.out(grid, 1)?;
        let values: Vec<u64> = (0..out.len() as u64).collect();
        let buffer = session.device.upload(&values).map_err(|error| error.to_string())?;
        session.run(wave_reduction, grid, (&buffer, &out))?;
        for (sums, values) in read(&out)?.chunks(lanes as usize).zip(values.chunks(lanes as usize)) {
            same!(sums, vec![3 * values.iter().sum::<u64>(); lanes as usize]);
        }
    }
    Ok(())
}

/// Lanes that wait for another one in a loop of their own do not keep it from running.
pub fn spinning(context: &Context) -> Outcome {
    for threads in [1, 3] {
        let config = SoftwareDeviceConfig { threads, ..context.software() };
        let session = context.open(|device| device.inline_service(echo()).software(config))?;
        for grid in [Grid::new(1, 40), Grid::new(3, 10)] {
            let (flag, out) = (session.out(Grid::new(1, 1), 1)?, session.out(grid, 1)?);
            session.run(wave_spinning, grid, (&flag, &out))?;
            done(&read(&out)?)?;
        }
    }
    Ok(())
}

/// A launch most of whose lanes never look up can still be ended by one of them, or from outside.
pub fn spinning_for_ever(context: &Context) -> Outcome {
    if !context.is_software() {
        return Ok(());
    }
    let config =
        SoftwareDeviceConfig { threads: 1, cancel_grace: Duration::from_millis(50), ..context.software() };
    for way in 0..3u32 {
        let session = context.open(|device| device.inline_service(echo()).software(config.clone()))?;
        let stream = session.stream()?;
        let launch = session.launch(&stream, wave_spinning_for_ever, Grid::new(1, 20), (way,))?;
        if way == 2 {
            while session.device.statistics().packets < 100 {
                std::thread::sleep(Duration::from_millis(1));
            }
            session.device.cancel_all();
        }
        match (way, stream.synchronize()) {
            (0, Ok(())) => {
                same!(launch.wait().map_err(|error| error.to_string())?.exit_code, Some(4));
            }
            (1, Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(panic), .. }, .. })) => {
                same!((panic.lane, panic.message.as_str()), (19, "the last lane gives up"));
            }
            (2, Err(Error::Launch { failure: LaunchFailure::Cancelled, .. })) => {}
            (_, other) => return Err(format!("the launch ended with {other:?}")),
        }
        // The device works as before.
        let (flag, out) = (session.out(Grid::new(1, 1), 1)?, session.out(Grid::new(1, 10), 1)?);
        session.run(wave_spinning, Grid::new(1, 10), (&flag, &out))?;
        ensure!(done(&read(&out)?).is_ok());
    }
    Ok(())
}

/// What lanes of a wave bring, `None` for those that stay away, and the words that each of them shall get.
struct Expected<'a> {
    brought: &'a [Option<u64>],
    words: &'a mut [Vec<u64>],
}

impl Expected<'_> {
    /// The lane's own value when the other one did not come.
    fn shuffle(&mut self, from: impl Fn(usize) -> Option<usize>) {
        for (lane, own) in self.brought.iter().enumerate() {
            let Some(own) = *own else { continue };
            let other = from(lane).and_then(|from| self.brought.get(from).copied().flatten());
            self.words[lane].push(other.unwrap_or(own));
        }
    }

    fn reduce(&mut self, combine: impl Fn(u64, u64) -> u64) {
        let all = self.brought.iter().copied().flatten().reduce(combine);
        for (lane, _) in self.brought.iter().enumerate().filter(|(_, own)| own.is_some()) {
            self.words[lane].extend(all);
        }
    }

    /// With the value that the first lane gets, an exclusive scan.
    fn scan(&mut self, first: Option<u64>, combine: impl Fn(u64, u64) -> u64) {
        let mut before = None;
        for (lane, own) in self.brought.iter().enumerate() {
            let Some(own) = *own else { continue };
            let with_own = before.map_or(own, |before| combine(before, own));
            self.words[lane].push(first.map_or(with_own, |first| before.unwrap_or(first)));
            before = Some(with_own);
        }
    }
}

macro_rules! computed {
    ($words:expr, $lanes:expr, $size:expr, $field:tt, $to:expr, $from:expr, $add:expr, $min:expr, $max:expr,
        [$zero:expr, $largest:expr]) => {{
        let (to, from) = ($to, $from);
        let brought: Vec<_> = $lanes.iter().map(|id| id.map(|id: u64| to(numbers(id).$field))).collect();
        let mut expected = Expected { brought: &brought, words: $words };
        let combine = |combine: fn(_, _) -> _| move |a, b| to(combine(from(a), from(b)));
        expected.shuffle(|lane| Some((lane * 7 + 3) % $size));
        expected.shuffle(|lane| lane.checked_sub(1));
        expected.shuffle(|lane| Some(lane + 2));
        expected.shuffle(|lane| Some(lane ^ 5));
        expected.reduce(combine($add));
        expected.reduce(combine($min));
        expected.reduce(combine($max));
        expected.scan(None, combine($add));
        expected.scan(None, combine($max));
        expected.scan(Some(to($zero)), combine($add));
        expected.scan(Some(to($largest)), combine($min));
    }};
}

macro_rules! computed_bits {
    ($words:expr, $lanes:expr, $field:tt, $to:expr) => {{
        let brought: Vec<_> = $lanes.iter().map(|id| id.map(|id: u64| $to(numbers(id).$field))).collect();
        let mut expected = Expected { brought: &brought, words: $words };
        expected.reduce(|a, b| a & b);
        expected.reduce(|a, b| a | b);
        expected.reduce(|a, b| a ^ b);
        expected.scan(None, |a, b| a ^ b);
    }};
}

/// What the lanes of a wave shall write: those with a number come.
fn numbers_of_wave(lanes: &[Option<u64>], size: usize) -> Vec<Vec<u64>> {
    let mut words = vec![vec![size as u64]; lanes.len()];
    let came = |lane: &usize| lanes[*lane].is_some();
    for lane in (0..lanes.len()).filter(came) {
        let same = |other: &usize| lanes[*other].map(|id| id % 3) == lanes[lane].map(|id| id % 3);
        words[lane].push((0..lanes.len()).filter(same).map(|lane| 1u64 << lane).sum());
        let any = (0..lanes.len()).filter(came).any(|lane| lane == 4);
        let all = (0..lanes.len()).filter(came).all(|lane| lane < 40);
        words[lane].push(u64::from(any) | u64::from(all) << 1);
    }
    let words_mut = words.as_mut_slice();
    let (u32s, i32s) = ((u64::from, |bits| bits as u32), (|x: i32| u64::from(x as u32), |bits| bits as i32));
    let (u64s, i64s) = ((|x: u64| x, |bits: u64| bits), (|x: i64| x as u64, |bits| bits as i64));
    let f32s = (|x: f32| u64::from(x.to_bits()), |bits| f32::from_bits(bits as u32));
    let f64s = (f64::to_bits, f64::from_bits);
    computed!(
        words_mut,
        lanes,
        size,
        0,
        u32s.0,
        u32s.1,
        u32::wrapping_add,
        u32::min,
        u32::max,
        [0, u32::MAX]
    );
    computed!(
        words_mut,
        lanes,
        size,
        1,
        i32s.0,
        i32s.1,
        i32::wrapping_add,
        i32::min,
        i32::max,
        [0, i32::MAX]
    );
    computed!(
        words_mut,
        lanes,
        size,
        2,
        u64s.0,
        u64s.1,
        u64::wrapping_add,
        u64::min,
        u64::max,
        [0, u64::MAX]
    );
    computed!(
        words_mut,
        lanes,
        size,
        3,
        i64s.0,
        i64s.1,
        i64::wrapping_add,
        i64::min,
        i64::max,
        [0, i64::MAX]
    );
    computed!(
        words_mut,
        lanes,
        size,
        4,
        f32s.0,
        f32s.1,
        |a, b| a + b,
        f32::min,
        f32::max,
        [-0.0, f32::INFINITY]
    );
    computed!(
        words_mut,
        lanes,
        size,
        5,
        f64s.0,
        f64s.1,
        |a, b| a + b,
        f64::min,
        f64::max,
        [-0.0, f64::INFINITY]
    );
    computed_bits!(words_mut, lanes, 0, u64::from);
    computed_bits!(words_mut, lanes, 1, i32s.0);
    computed_bits!(words_mut, lanes, 2, u64s.0);
    computed_bits!(words_mut, lanes, 3, i64s.0);
    words
}

/// Shuffles, votes, matches, reductions and scans of whole waves and of parts are what the host computes.
pub fn numbers_of_waves(context: &Context) -> Outcome {
    if context.faults.delay_lanes > 0.0 {
        // Lanes come apart then, and compute in other parts.
        return Ok(());
    }
    let session = context.open(|device| device)?;
    for lanes in [1u32, 31, 64, 100, 256] {
        for part in [u64::MAX, 0x5555_5555_5555_5555, 0xfedc_ba98_7654_3210, 1 << 17, 0x8000_0001_8000_0001] {
            let grid = Grid::new(2, lanes);
            let out = session.out(grid, WORDS)?;
            session.run(wave_numbers, grid, (part, &out))?;
            let out = read(&out)?;
            let size = out[0] as usize;
            let ids: Vec<u64> = (0..u64::from(2 * lanes)).collect();
            for wave in ids.chunks(lanes as usize).flat_map(|workgroup| workgroup.chunks(size)) {
                let came = |(index, id): (usize, &u64)| (part >> index & 1 != 0).then_some(*id);
                let came: Vec<_> = wave.iter().enumerate().map(came).collect();
                for (id, mut expected) in wave.iter().zip(numbers_of_wave(&came, size)) {
                    expected.resize(WORDS, 0);
                    let found = &out[*id as usize * WORDS..][..WORDS];
                    let wrong = (0..WORDS).find(|at| found[*at] != expected[*at]);
                    same!(
                        (lanes, part, id, wrong.map(|at| (at, found[at], expected[at]))),
                        (lanes, part, id, None)
                    );
                }
            }
        }
    }
    Ok(())
}
