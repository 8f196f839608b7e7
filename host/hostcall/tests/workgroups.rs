//! What lanes of a workgroup compute together of numbers that are none.

use hostcall::workgroup::Scratch;
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel, wave};

/// Each lane's smallest and largest number of the workgroup, and the largest up to it; only lane `of` has one.
#[kernel]
fn only_one(lane: &Lane, #[workgroup] scratch: &Scratch<f64>, of: u32, out: &[Global<f64>]) {
    let number = if lane.local_id() as u32 == of { 1.5 } else { f64::NAN };
    let own = &out[3 * lane.local_id()..][..3];
    own[0].set(lane.workgroup_reduce(scratch, number, wave::Min));
    own[1].set(lane.workgroup_reduce(scratch, number, wave::Max));
    own[2].set(lane.workgroup_scan(scratch, number, wave::Max));
}

#[test]
fn a_number_counts_beside_nans_and_nans_among_themselves() {
    for wave_size in [32, 64] {
        let device = Device::builder("cpu").wave_size(wave_size).open().unwrap();
        let stream = device.stream().unwrap();
        for lanes in [1, 32, 33, 200] {
            for of in [0, lanes - 1, 1000] {
                let out = device.alloc_zeroed::<f64>(3 * lanes as usize).unwrap();
                only_one.launch(&stream, Grid::new(1, lanes), (of, &out)).unwrap();
                stream.synchronize().unwrap();
                for (lane, found) in (0..).zip(out.read().unwrap().as_chunks::<3>().0) {
                    let [min, max, up_to] = *found;
                    let is_right =
                        |found: f64, is_there| if is_there { found == 1.5 } else { found.is_nan() };
                    assert!(
                        is_right(min, of < lanes) && is_right(max, of < lanes),
                        "{lanes} {of} {lane}: {min} {max}"
                    );
                    assert!(is_right(up_to, of <= lane), "{lanes} {of} {lane}: {up_to}");
                }
            }
        }
    }
}
