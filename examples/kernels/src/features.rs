//! Scores requests by features that another process has.

use hostcall_device::{CallError, Global, Lane, kernel, service};

// ANCHOR: service
/// A store of features of users.
#[service]
pub trait Features {
    /// A user's features; `None`: there is no such user.
    fn of(user: u64) -> Option<[f32; 4]>;
}
// ANCHOR_END: service

/// The score of a user who is unknown.
pub const UNKNOWN: f32 = -1.0;

// ANCHOR: kernel
/// Writes the score of each request's user to `scores`.
#[kernel]
pub fn score(lane: &Lane, users: &[u64], weights: [f32; 4], scores: &[Global<f32>]) {
    let i = lane.global_id();
    let Some(user) = users.get(i) else { return };
    let mut tries = 0;
    let features = loop {
        // One message for all lanes of all waves that wait.
        match Features::within_us(2_000_000).of(*user) {
            // The call was not sent, so that it may be made again.
            Err(CallError::Unreachable) if tries < 10 => tries += 1,
            // It may have run. To read twice does no harm; to book a seat twice would.
            Err(CallError::MayHaveRun) if tries < 10 => tries += 1,
            Err(error) => panic!("no features of user {user}: {error}"),
            Ok(features) => break features,
        }
    };
    let score = features.map_or(UNKNOWN, |of| {
        of[0] * weights[0] + of[1] * weights[1] + of[2] * weights[2] + of[3] * weights[3]
    });
    scores[i].set(score);
}
// ANCHOR_END: kernel
