use crate::{Context, Gates, Outcome, ensure, same};
use conformance::print::*;
use conformance::services::Gate;
use hostcall::hostcall_device::io;
use hostcall::services::Lines;
use hostcall::{CallError, Grid};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub fn types(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    session.run(print_types, Grid::new(1, 1), ())?;
    let (unsigned, signed, float, letter, text) = (250u8, -7i32, 1.5f64, 'ß', "text");
    let (call, io) = (CallError::Failed(-3), io::Error::Os(28));
    let expected = [
        String::new(),
        "plain {}".into(),
        format!("{} {} {} {} {}", unsigned, 65_535u16, u32::MAX, u64::MAX, 7usize),
        format!("{} {} {} {} {}", -1i8, i16::MIN, signed, i64::MIN, -7isize),
        format!("{} {} {} {} {}", float, 0.1f32, true, letter, f64::NAN),
        format!("{unsigned} {signed:>5} {float:.3} {letter:?} {text:?}"),
        format!("{:#x} {:08b} {:o} {:X} {:#010x}", unsigned, 5u8, 8u32, 255u8, signed),
        format!("{:>6}|{:<6}|{:^6}|{:*^7}|{:+}", 1, 2, 3, 4, 5),
        format!("{:e} {:E} {:8.2} {:?} {:?}", 1234.5f64, 0.001f32, float, 1.0f64, 1e300),
        format!("1 4 1 {text} {:>4}", 9),
        "1 2 3 4 5 6 7".into(),
        "text and another and     text.".into(),
        format!("{:?} {:?}", "quote \" and \n", '\''),
        "no end until here".into(),
        "    7 1.23456".into(),
        "250 text".into(),
        format!("{call}, {io}: {call:?} {io:?} {} {:>30}", CallError::Busy, io::Error::NotFound),
    ];
    same!(session.stdout.lines(), expected);
    Ok(())
}

pub fn owned(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    session.run(print_owned, Grid::new(1, 1), ())?;
    let lines = session.stdout.lines();
    same!(lines[..2], ["\"owned\" x borrowed -5", "65535 7 fffd"]);
    let address = &lines[3];
    same!(lines[2], format!("{address} {address} {address}"));
    Ok(())
}

pub fn by_device(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    session.run(print_by_device, Grid::new(2, 40), ())?;
    let (out, err) = (session.stdout.lines(), session.stderr.text());
    for id in 0..80 {
        let point = Point { x: 1.5, name: Some("x") };
        let expected = [
            format!("{id} Some({id}) None"),
            format!("{id} {point:?} {:?} {:?}", (1, 'x', "text"), [1.5, f32::INFINITY]),
            format!("{id} {} {:#x}", u128::MAX, i128::MIN),
            format!("{id} {:?} {:?}", Ok::<u8, CallError>(1), Err::<u8, _>(io::Error::Os(28))),
            format!("{id}   some %|{:.2}|{:>6}", Percent(6), Percent(3)),
            format!("{id} {:?}", [u64::MAX; 20]),
            format!("{id} {}", format_args!("{:?} {:>5.1}", Some(&point), 2.25f64)),
        ];
        let own = format!("{id} ");
        same!(out.iter().filter(|line| line.starts_with(&own)).collect::<Vec<_>>(), expected.each_ref());
        ensure!(err.contains(&format!("{id} {point:#?}\n")));
    }
    same!(out.len(), 80 * 7);
    Ok(())
}

pub fn generic(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    session.run(print_generic, Grid::new(1, 1), ())?;
    let once = ["<1>", "<-2>", "<three>", "<4.5>", "<5>"];
    same!(session.stdout.lines(), [once, once].concat());
    Ok(())
}

pub fn order(context: &Context) -> Outcome {
    const LANES: usize = 3 * 70;
    const COUNT: usize = 60;
    let session = context.open(|device| device)?;
    session.run(print_in_order, Grid::new(3, 70), (COUNT as u32,))?;
    let mut next = [0; LANES];
    for line in session.stdout.lines() {
        let mut words = line.split(' ');
        let mut number =
            |name: &str| (words.next() == Some(name)).then(|| words.next()?.parse::<usize>().ok()).flatten();
        let (lane, i) = number("lane").zip(number("line")).ok_or_else(|| format!("mixed line: {line:?}"))?;
        ensure!(lane < LANES);
        same!((lane, i), (lane, next[lane]));
        let rest = ["", "text", "1 2 3 4 5", ""][(i + lane) % 4];
        same!(words.collect::<Vec<_>>().join(" "), rest);
        next[lane] += 1;
    }
    same!(next, [COUNT; LANES]);
    Ok(())
}

/// Lines say which lane of which workgroup they come from, also where a workgroup's slot was another's since; and lines of
/// others are left out.
pub fn origins(context: &Context) -> Outcome {
    const LANES: usize = 70;
    let grid = Grid::new_3d([20, 3, 1], [LANES as u32, 1, 1]);
    let session = context.open_with(|builtins| builtins.lines(Lines::new().prefix()), |device| device)?;
    session.run(print_in_order, grid, (2,))?;
    let lines = session.stdout.lines();
    same!(lines.len(), 60 * LANES * 2);
    for line in lines {
        let mut words = line.split("lane ");
        words.next();
        let mut number = || words.next()?.split([']', ' ']).next()?.parse::<usize>().ok();
        let (lane, id) = number().zip(number()).ok_or_else(|| format!("no prefix: {line:?}"))?;
        let (at, launch) = (id / LANES, format!("[{}, print_in_order ", context.device));
        same!((line.starts_with(&launch), lane), (true, id % LANES));
        ensure!(line.contains(&format!(
            ", workgroup {}.{}.0, lane {lane}] lane {id} line ",
            at % 20,
            at / 20
        )));
    }
    let few = Lines::new().of_kernel("print_streams").of_workgroup([1, 0, 0]).of_lane(17);
    let session = context.open_with(|builtins| builtins.lines(few), |device| device)?;
    session.run(print_in_order, Grid::new(2, 20), (2,))?;
    session.run(print_streams, Grid::new(2, 20), ())?;
    same!(session.stdout.text(), "out 37\nbytes out\n");
    same!(session.stderr.text(), "err 37\nerr 37 end\nbytes err\n");
    Ok(())
}

pub fn outputs(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    session.run(print_streams, Grid::new(2, 20), ())?;
    let (out, err) = (session.stdout.lines(), session.stderr.lines());
    for lane in 0..40 {
        same!(out.iter().filter(|line| **line == format!("out {lane}")).count(), 1);
        ensure!(err.iter().any(|line| line.contains(&format!("err {lane}"))));
    }
    same!(out.iter().filter(|line| *line == "bytes out").count(), 40);
    same!(out.len(), 80);
    same!(session.stderr.text().matches("bytes err\n").count(), 40);
    Ok(())
}

/// Each lane waits until its line was seen.
pub fn while_running(context: &Context) -> Outcome {
    let gates = Gates::default();
    let session = context.open(|device| device.service(Gate::serve(gates.clone())))?;
    let grid = Grid::new(2, 40);
    let (stream, out) = (session.stream()?, session.out(grid, 1)?);
    session.launch(&stream, print_while_running, grid, (&out,))?;
    let mut seen = BTreeSet::new();
    let limit = Instant::now() + Duration::from_secs(60);
    while seen.len() < 80 && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(1));
        for lane in session.stdout.lines().iter().filter_map(|line| line.strip_prefix("seen ")?.parse().ok())
        {
            if seen.insert(lane) {
                gates.open(lane);
            }
        }
    }
    gates.open_all();
    stream.synchronize().map_err(|error| error.to_string())?;
    same!(seen.len(), 80);
    Ok(())
}
