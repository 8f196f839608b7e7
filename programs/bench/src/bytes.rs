//! Kernels that move bytes: messages, replies and files.

use alloc::vec;
use hostcall_device::fs::OpenOptions;
use hostcall_device::io::{self, Error};
use hostcall_device::{Global, Lane, kernel, service};

/// What the benchmarks call with bytes.
#[service]
pub trait Bytes {
    /// Fills `out` with bytes of 1.
    fn fill(out: &mut [u8]);
    /// Adds up bytes.
    fn sum(data: &[u8]) -> u64;
}

/// `count` replies of `bytes` bytes, of which the first and the last are looked at.
#[kernel(max_lanes = 256)]
pub fn replies(lane: &Lane, ns: &[Global<u64>], failed: &[Global<u64>], bytes: u64, count: u64) {
    let mut buffer = vec![0; bytes as usize];
    let start = lane.clock_ns();
    for _ in 0..count {
        (buffer[0], buffer[bytes as usize - 1]) = (0, 0);
        let filled = Bytes::fill(&mut buffer).map_or(0, |(_, filled)| filled);
        if filled != buffer.len() || buffer[0] != 1 || buffer[filled - 1] != 1 {
            failed[lane.global_id()].set(1);
        }
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// `count` messages of `bytes` bytes, which the host adds up.
#[kernel(max_lanes = 256)]
pub fn requests(lane: &Lane, ns: &[Global<u64>], failed: &[Global<u64>], bytes: u64, count: u64) {
    let buffer = vec![1; bytes as usize];
    let start = lane.clock_ns();
    for _ in 0..count {
        if Bytes::sum(&buffer) != Ok(bytes) {
            failed[lane.global_id()].set(1);
        }
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

/// Reads the file `bytes`, of `len` bytes, in pieces of `piece` bytes, all lanes together.
#[kernel(max_lanes = 256)]
pub fn file_reads(lane: &Lane, failed: &[Global<u64>], len: u64, piece: u64) {
    let read = || -> io::Result<()> {
        let file = OpenOptions::new().read().open("bytes")?;
        let mut buffer = vec![0; piece as usize];
        each_piece(lane, len, piece, |at, want| {
            let mut got = 0;
            while got < want {
                match file.read_at(at + got as u64, &mut buffer[got..want])? {
                    0 => return Err(Error::UnexpectedEnd),
                    more => got += more,
                }
            }
            Ok(())
        })
    };
    failed[lane.global_id()].set(read().is_err().into());
}

/// Reads the file `bytes`, of `len` bytes, out of a mapping, in pieces of `piece` bytes. What that takes without the mapping
/// goes to `ns`.
#[kernel(max_lanes = 256)]
pub fn file_maps(lane: &Lane, ns: &[Global<u64>], failed: &[Global<u64>], len: u64, piece: u64) {
    let read = || -> io::Result<()> {
        let file = OpenOptions::new().read().open("bytes")?;
        let map = file.map(lane)?;
        let start = lane.clock_ns();
        let mut buffer = vec![0; piece as usize];
        each_piece(lane, len, piece, |at, want| match map.read_at(at, &mut buffer)? {
            got if got == want => Ok(()),
            _ => Err(Error::UnexpectedEnd),
        })?;
        ns[lane.global_id()].set(lane.clock_ns() - start);
        Ok(())
    };
    failed[lane.global_id()].set(read().is_err().into());
}

/// Writes the file `bytes`, of `len` bytes, in pieces of `piece` bytes, all lanes together.
#[kernel(max_lanes = 256)]
pub fn file_writes(lane: &Lane, failed: &[Global<u64>], len: u64, piece: u64) {
    let write = || -> io::Result<()> {
        let file = OpenOptions::new().write().open("bytes")?;
        let buffer = vec![1; piece as usize];
        each_piece(lane, len, piece, |at, want| {
            let mut put = 0;
            while put < want {
                put += file.write_at(at + put as u64, &buffer[put..want])?;
            }
            Ok(())
        })
    };
    failed[lane.global_id()].set(write().is_err().into());
}

/// Does something for each of this lane's pieces of `len` bytes: where it begins, and how many bytes it has.
fn each_piece(
    lane: &Lane,
    len: u64,
    piece: u64,
    mut each: impl FnMut(u64, usize) -> io::Result<()>,
) -> io::Result<()> {
    let step = piece * lane.grid_lanes() as u64;
    let mut at = piece * lane.global_id() as u64;
    while at < len {
        each(at, piece.min(len - at) as usize)?;
        at += step;
    }
    Ok(())
}
