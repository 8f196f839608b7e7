//! Bodies that attract each other, each step a launch. The kernels tell the host how far they are.

use core::sync::atomic::Ordering::Relaxed;
use hostcall_device::atomic::Scope;
use hostcall_device::math::Float;
use hostcall_device::workgroup::Scratch;
use hostcall_device::{Global, Lane, Shared, kernel, service, wave};

/// Lanes of a workgroup, and bodies that it has in its memory at a time.
pub const TILE: usize = 256;

/// Keeps bodies that come close from being thrown out: the square of a length that is added to each distance's.
pub const SOFTENING: f32 = 1e-3;

// ANCHOR: service
/// What the simulation tells the host.
#[service]
pub trait Progress {
    /// So many steps are done, and all bodies together have this energy.
    fn step(number: u32, energy: f64);
}
// ANCHOR_END: service

/// The place of body `i` in x, y and z, and its mass; no mass behind the last one.
fn body(bodies: &[f32], i: usize) -> [f32; 4] {
    bodies.get(4 * i..4 * i + 4).map_or([0.0; 4], |body| [body[0], body[1], body[2], body[3]])
}

/// Moves each body by one step of `time`. A body's place and mass are four numbers of `bodies` and of `next`, its velocity
/// three of `velocities`.
#[kernel(max_lanes = 256)]
pub fn step(
    lane: &Lane,
    #[workgroup] tile: &[Shared<[f32; 4]>; TILE],
    time: f32,
    bodies: &[f32],
    velocities: &[Global<f32>],
    next: &[Global<f32>],
) {
    let (i, count) = (lane.global_id(), bodies.len() / 4);
    let [x, y, z, mass] = body(bodies, i);
    let mut pull = [0.0; 3];
    for first in (0..count).step_by(TILE) {
        tile[lane.local_id()].set(body(bodies, first + lane.local_id()));
        lane.barrier();
        for other in tile {
            let [other_x, other_y, other_z, other_mass] = other.get();
            let to = [other_x - x, other_y - y, other_z - z];
            let square = to[0] * to[0] + to[1] * to[1] + to[2] * to[2] + SOFTENING;
            let scale = other_mass / (square * Float::sqrt(square));
            for (pull, to) in pull.iter_mut().zip(to) {
                *pull += scale * to;
            }
        }
        lane.barrier();
    }
    if i < count {
        for (axis, (place, pull)) in [x, y, z].into_iter().zip(pull).enumerate() {
            let velocity = velocities[3 * i + axis].get() + time * pull;
            velocities[3 * i + axis].set(velocity);
            next[4 * i + axis].set(place + time * velocity);
        }
        next[4 * i + 3].set(mass);
    }
}

/// Adds the energy of all bodies to `energy`: what they have by moving, less what holds them together.
#[kernel(max_lanes = 256)]
pub fn add_energy(
    lane: &Lane,
    #[workgroup] scratch: &Scratch<f64>,
    bodies: &[f32],
    velocities: &[f32],
    energy: &Global<f64>,
) {
    let i = lane.global_id();
    let [x, y, z, mass] = body(bodies, i);
    let mut own = 0.0;
    if let Some(velocity) = velocities.get(3 * i..3 * i + 3) {
        let square: f32 = velocity.iter().map(|v| v * v).sum();
        own += 0.5 * f64::from(mass) * f64::from(square);
        for other in i + 1..bodies.len() / 4 {
            let [other_x, other_y, other_z, other_mass] = body(bodies, other);
            let to = [other_x - x, other_y - y, other_z - z];
            let square = to[0] * to[0] + to[1] * to[1] + to[2] * to[2] + SOFTENING;
            own -= f64::from(mass * other_mass / Float::sqrt(square));
        }
    }
    let of_workgroup = lane.workgroup_reduce(scratch, own, wave::Add);
    if lane.local_id() == 0 {
        energy.fetch_add(of_workgroup, Relaxed, Scope::Device);
    }
}

// ANCHOR: report
/// Tells the host that `number` steps are done, and begins with the energy anew. One lane runs it.
#[kernel]
pub fn report(_: &Lane, number: u32, energy: &Global<f64>) {
    // A post: the kernel does not wait for the host. Without a host nobody needs to know.
    let _ = Progress::post_step(number, energy.get());
    energy.set(0.0);
}
// ANCHOR_END: report
