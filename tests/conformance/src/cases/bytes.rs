use crate::context::read;
use crate::handlers::Messages;
use crate::{Context, Outcome, Session, echo, same};
use conformance::bytes::{bytes_echo, bytes_in_parts, bytes_in_turn, bytes_small, bytes_too_large, hash};
use conformance::mix;
use conformance::services::Bytes;
use hostcall::Grid;

fn open(context: &Context, limit: usize) -> Result<Session, String> {
    context.open(|device| {
        let device = device.server(move |server| server.message_limit(limit));
        device.service(Bytes::serve(Messages)).inline_service(echo())
    })
}

fn random_bytes(count: usize) -> Vec<u8> {
    (0..count.div_ceil(8) as u64).flat_map(|i| mix(i).to_le_bytes()).take(count).collect()
}

/// Every lane of `grid` sends a message and gets it back; lane `i` one of (`len` + `i` × `step`) mod (`most` + 1)
/// bytes.
fn echo_of(session: &Session, grid: Grid, len: usize, step: usize, most: usize) -> Outcome {
    let out = session.out(grid, 1)?;
    let lanes = out.len();
    let data = random_bytes(lanes * most);
    let buffer = session.device.upload(&data).map_err(|error| error.to_string())?;
    let room = session.device.alloc_zeroed::<u8>(data.len()).map_err(|error| error.to_string())?;
    session.run(bytes_echo, grid, (&buffer, len as u32, step as u32, most as u32, &room, &out))?;
    let room = room.read().map_err(|error| error.to_string())?;
    for (lane, value) in read(&out)?.into_iter().enumerate() {
        let (start, len) = (lane * most, (len + lane * step) % (most + 1));
        if room[start..start + len] != data[start..start + len] {
            return Err(format!("lane {lane} got other bytes than the {len} that it sent"));
        }
        same!((lane, value), (lane, hash(data[start..start + len].iter().copied())));
    }
    Ok(())
}

pub fn lengths(context: &Context) -> Outcome {
    let session = open(context, 8 << 20)?;
    for len in [0, 1, 7, 8, 9, 63, 64, 511, 512, 513, 4095, 4096, 4097, 100_000] {
        for lanes in [1, 3, 33] {
            if len * lanes < 1 << 20 {
                echo_of(&session, Grid::new(1, lanes as u32), len, 0, len.max(1))?;
            }
        }
    }
    Ok(())
}

pub fn own_lengths(context: &Context) -> Outcome {
    let session = open(context, 8 << 20)?;
    echo_of(&session, Grid::new(8, 32), 5, 13, 600)?;
    echo_of(&session, Grid::new(2, 45), 1, 999, 10_000)
}

pub fn megabyte(context: &Context) -> Outcome {
    let session = open(context, 8 << 20)?;
    echo_of(&session, Grid::new(2, 1), 1 << 20, 0, 1 << 20)?;
    echo_of(&session, Grid::new(1, 3), 1 << 20, 0, 1 << 20)
}

pub fn small(context: &Context) -> Outcome {
    let session = open(context, 8 << 20)?;
    session.all_done(bytes_small, Grid::new(3, 50))
}

pub fn in_turn(context: &Context) -> Outcome {
    let session = context.open(|device| {
        let device = device.server(|server| server.messages_limit(20_000));
        device.service(Bytes::serve(Messages)).inline_service(echo())
    })?;
    session.all_done(bytes_in_turn, Grid::new(2, 40))
}

pub fn in_parts(context: &Context) -> Outcome {
    let session = open(context, 8 << 20)?;
    for grid in [Grid::new(4, 1), Grid::new(2, 64), Grid::new(1, 33), Grid::new(1, 320)] {
        session.all_done(bytes_in_parts, grid)?;
    }
    Ok(())
}

pub fn too_large(context: &Context) -> Outcome {
    const LIMIT: usize = 20_000;
    let session = open(context, LIMIT)?;
    let grid = Grid::new(2, 10);
    let out = session.out(grid, 1)?;
    let data = session.device.upload(&random_bytes(LIMIT + 100)).map_err(|error| error.to_string())?;
    session.run(bytes_too_large, grid, (&data, LIMIT as u32, &out))?;
    crate::context::done(&read(&out)?)
}
