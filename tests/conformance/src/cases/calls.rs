use crate::context::{done, read};
use crate::handlers::{AllTypes, Messages};
use crate::{Context, Noted, Outcome, echo, ensure, same};
use conformance::calls::*;
use conformance::services::{Bytes, Meter, Types};
use hostcall::Grid;
use std::collections::BTreeSet;

/// Workgroups that fill their waves, or not.
const SIZES: [u32; 9] = [1, 5, 31, 32, 33, 64, 65, 100, 1024];

pub fn words(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    session.all_done(call_words, Grid::new(3, 64))
}

pub fn types(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(Types::serve(AllTypes)))?;
    session.all_done(call_types, Grid::new(2, 128))
}

pub fn partial_waves(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    for lanes in SIZES {
        let grid = Grid::new(3, lanes);
        let out = session.out(grid, 1)?;
        session.run(call_in_turn, grid, (5u32, &out))?;
        done(&read(&out)?)?;
    }
    Ok(())
}

pub fn positions(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    let (groups, lanes) = ([3, 2, 2], [5, 3, 7]);
    let grid = Grid::new_3d(groups, lanes);
    let out = session.out(grid, 4)?;
    session.run(call_positions, grid, (&out,))?;
    let pack = |[x, y, z]: [u32; 3]| u64::from(z) << 40 | u64::from(y) << 20 | u64::from(x);
    let split = |i: u32, [width, height, _]: [u32; 3]| [i % width, i / width % height, i / width / height];
    let wave_size = session.device.wave_size();
    for (i, values) in (0..).zip(read(&out)?.chunks(4)) {
        let (group, local) = (i / 105, i % 105);
        let wave = [local / wave_size, local % wave_size].map(u64::from);
        same!(values, [pack(split(group, groups)), pack(split(local, lanes)), wave[0], wave[1]]);
    }
    Ok(())
}

pub fn increments(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    let grid = Grid::new_3d([2, 2, 2], [4, 4, 4]);
    let values = session.values(call_increments, grid)?;
    let expected: Vec<u64> = (0..512).map(|i| 10 + 10 * (i % 64) + 10 * (i / 64)).collect();
    same!(values, expected);
    Ok(())
}

pub fn once(context: &Context) -> Outcome {
    let noted = Noted::default();
    let session = context.open(|device| device.inline_service(Meter::serve(noted.clone())))?;
    let grid = Grid::new(6, 100);
    let out = session.out(grid, 3)?;
    session.run(call_once, grid, (&out,))?;
    let waves = 6 * u64::from(100u32.div_ceil(session.device.wave_size()));
    let counters = noted.counters();
    // A wave may come in parts, but each part calls once.
    ensure!((waves..=600).contains(&counters[&1]));
    same!((counters[&2], counters[&3]), (6, 600));
    let values = read(&out)?;
    let column = |i: usize| values.iter().skip(i).step_by(3).copied();
    same!(column(0).collect::<BTreeSet<_>>().len() as u64, counters[&1]);
    same!(column(2).collect::<BTreeSet<_>>().len(), 600);
    let groups: Vec<u64> = column(1).collect();
    ensure!(groups.chunks(100).all(|group| group.iter().all(|value| *value == group[0])));
    same!(groups.iter().collect::<BTreeSet<_>>().len(), 6);
    Ok(())
}

pub fn divergence(context: &Context) -> Outcome {
    let session = context.open(|device| {
        let device = device.inline_service(echo()).inline_service(Types::serve(AllTypes));
        device.service(Bytes::serve(Messages))
    })?;
    for lanes in [1, 31, 64, 200] {
        session.all_done(call_divergent, Grid::new(4, lanes))?;
    }
    Ok(())
}

pub fn chosen(context: &Context) -> Outcome {
    let session = context.open(|device| {
        let device = device.inline_service(echo()).inline_service(Meter::serve(Noted::default()));
        device.service(Bytes::serve(Messages))
    })?;
    session.all_done(call_chosen, Grid::new(3, 72))
}

pub fn few_slots(context: &Context) -> Outcome {
    let session = context.open_with_slots(128, |device| device.inline_service(echo()))?;
    // Many more waves than slots.
    let grid = Grid::new(500, 33);
    let out = session.out(grid, 1)?;
    session.run(call_in_turn, grid, (3u32, &out))?;
    done(&read(&out)?)
}

pub fn many_workgroups(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    let grid = Grid::new(20_000, 1);
    let out = session.out(grid, 1)?;
    session.run(call_in_turn, grid, (1u32, &out))?;
    done(&read(&out)?)
}

pub fn services_run_in_any_way(context: &Context) -> Outcome {
    let session = context.open(|device| device.service(echo()).service(Types::serve(AllTypes)))?;
    session.all_done(call_words, Grid::new(3, 40))?;
    session.all_done(call_types, Grid::new(1, 40))
}
