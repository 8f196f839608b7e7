//! Posts, and calls that are waited for later.

use crate::context::{done, read};
use crate::{Context, Gates, Noted, Outcome, echo, same};
use conformance::pending::*;
use conformance::posts::*;
use conformance::services::{Gate, Keys, Meter};
use hostcall::Grid;

fn posts_of(context: &Context, grid: Grid, count: u32) -> Outcome {
    let noted = Noted::default();
    let session = context.open(|device| device.inline_service(Meter::serve(noted.clone())))?;
    let out = session.out(grid, 1)?;
    session.run(post_in_order, grid, (0u64, count, &out))?;
    done(&read(&out)?)?;
    let noted = noted.noted()?;
    same!(noted.len(), read(&out)?.len());
    same!(noted.values().find(|posts| **posts != u64::from(count)), None);
    Ok(())
}

pub fn order(context: &Context) -> Outcome {
    posts_of(context, Grid::new(5, 100), 60)
}

pub fn rings_wrap(context: &Context) -> Outcome {
    posts_of(context, Grid::new(2, 1), 50_000)?;
    posts_of(context, Grid::new(1, 33), 4_000)
}

/// Launches of few and of many waves take turns on the same slots, whose rings go on where the last wave ended.
pub fn rings_resized(context: &Context) -> Outcome {
    let noted = Noted::default();
    let session = context.open_with_slots(1024, |device| {
        device.ring_entries(16_384).inline_service(Meter::serve(noted.clone()))
    })?;
    let launches = [(1, 33, 700), (300, 1, 30), (1, 1, 9), (2, 40, 300), (300, 2, 1100), (1, 33, 9)];
    let mut keys = 0;
    for (workgroups, lanes, count) in launches {
        let grid = Grid::new(workgroups, lanes);
        let out = session.out(grid, 1)?;
        session.run(post_in_order, grid, (keys, count, &out))?;
        done(&read(&out)?)?;
        keys += u64::from(workgroups * lanes);
    }
    same!(noted.noted()?.len() as u64, keys);
    Ok(())
}

/// Whole waves, parts of them and lone lanes share a ring, which is full at times.
pub fn mixed(context: &Context) -> Outcome {
    for grid in [Grid::new(1, 1), Grid::new(2, 64), Grid::new(3, 72)] {
        let noted = Noted::default();
        let session = context.open(|device| device.inline_service(Meter::serve(noted.clone())))?;
        let out = session.out(grid, 1)?;
        session.run(post_mixed, grid, (400u32, &out))?;
        let (posted, noted) = (read(&out)?, noted.noted()?);
        same!(noted.values().copied().collect::<Vec<_>>(), posted);
    }
    Ok(())
}

pub fn sizes(context: &Context) -> Outcome {
    let noted = Noted::default();
    let session = context.open(|device| device.inline_service(Meter::serve(noted.clone())))?;
    session.all_done(post_sizes, Grid::new(2, 50))?;
    for (words, lanes) in [(0, 100), (1, 50), (3, 50), (4, 100), (5, 100), (6, 100), (20, 100)] {
        let posts = noted.of_size(words);
        same!((words, posts.len()), (words, lanes));
        for post in posts {
            same!(post, (0..words as u64).map(|i| post[0] - i).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// A launch that ended has none of its posts left behind.
pub fn left_behind(context: &Context) -> Outcome {
    for in_place in [true, false] {
        let noted = Noted::default();
        let service = Meter::serve(noted.clone());
        let session = context
            .open(|device| if in_place { device.inline_service(service) } else { device.service(service) })?;
        session.run(post_only, Grid::new(4, 40), (100u32,))?;
        let mut waits = 0;
        while !in_place && noted.noted()?.values().sum::<u64>() < 16_000 && waits < 10_000 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            waits += 1;
        }
        let noted = noted.noted()?;
        same!((noted.len(), noted.values().find(|posts| **posts != 100)), (160, None));
    }
    Ok(())
}

/// Posts reach the host while their wave runs on and neither posts nor calls again.
pub fn looked_for(context: &Context) -> Outcome {
    // Waves of one lane, full ones of both sizes, and others.
    for lanes in [1, 40, 64] {
        let session = context.open(|device| device.inline_service(Meter::serve(Noted::default())))?;
        let grid = Grid::new(2, lanes);
        let (flag, out) = (session.out(Grid::new(1, 1), 1)?, session.out(grid, 1)?);
        session.run(post_then_look, grid, (&flag, &out))?;
        done(&read(&out)?)?;
    }
    Ok(())
}

/// Posts to nobody are counted and forgotten.
pub fn refused(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    session.run(post_only, Grid::new(2, 40), (10u32,))?;
    let statistics = session.device.statistics();
    same!((statistics.posts, statistics.refused_posts, statistics.garbage_posts), (800, 800, 0));
    Ok(())
}

pub fn pending_calls(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    session.all_done(pending_order, Grid::new(1, 6))?;
    session.all_done(pending_dropped, Grid::new(2, 20))
}

/// More calls than the pool has slots: the others are made at once.
pub fn pending_past_the_pool(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    session.all_done(pending_order, Grid::new(5, 64))
}

pub fn pending_beside_a_call(context: &Context) -> Outcome {
    let gates = Gates::default();
    let session = context.open(|device| {
        device.service(Gate::serve(gates.clone())).inline_service(Keys::serve(gates.clone()))
    })?;
    session.all_done(pending_beside, Grid::new(1, 40))
}

/// Waves that forget calls wait for the answers when they end, and leave the slots to others: many times as many calls as there
/// are extra slots.
pub fn forgotten_calls(context: &Context) -> Outcome {
    let gates = Gates::default();
    let session = context.open(|device| device.service(Gate::serve(gates.clone())).inline_service(echo()))?;
    let (stream, grid) = (session.stream()?, Grid::new(1, 60));
    let out = session.out(grid, 1)?;
    session.launch(&stream, pending_forgotten, grid, (&out,))?;
    // Nobody answers: the kernel does not end.
    gates.wait_for_arrivals(60)?;
    let waiting = session.device.waiting().iter().map(|waiting| waiting.lanes).sum::<u32>();
    gates.open_all();
    stream.synchronize().map_err(|error| error.to_string())?;
    done(&read(&out)?)?;
    same!(waiting, 60);
    for _ in 0..40 {
        session.all_done(pending_forgotten, Grid::new(2, 60))?;
    }
    session.all_done(pending_order, Grid::new(20, 60))
}
