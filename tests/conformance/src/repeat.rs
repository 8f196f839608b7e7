//! The whole suite again and again, each time set up otherwise.

use crate::{Case, Context, Outcome};
use hostcall::device::Faults;

impl Context {
    /// What this seed stands for: on the software device the wave size and what goes wrong, elsewhere nothing. Eight seeds
    /// in a row are all combinations.
    pub fn of_seed(&self, seed: u64) -> Self {
        if !self.is_software() {
            return self.clone();
        }
        let bit = |n: u32| seed >> n & 1 != 0;
        let faults = Faults {
            seed,
            delay_lanes: if bit(1) { 0.05 } else { 0.0 },
            lose_notifications: if bit(2) { 1.0 } else { 0.0 },
            ..Faults::default()
        };
        Self { wave_size: if bit(0) { 64 } else { 32 }, faults, ..self.clone() }
    }

    /// The set-up, for a report.
    pub fn set_up(&self) -> String {
        if !self.is_software() {
            return self.device.clone();
        }
        let Self { device, wave_size, faults, .. } = self;
        let (delays, lost) = (faults.delay_lanes, faults.lose_notifications);
        format!("{device}, waves of {wave_size}, lanes delayed by {delays}, hints lost by {lost}")
    }
}

/// Runs the cases `times` times, each time with the next seed, from `seed` on. `run` runs one.
///
/// # Errors
/// A report of the first case that fails.
pub fn repeat(
    context: &Context,
    (seed, times): (u64, u64),
    cases: &[&Case],
    run: impl Fn(&Case, &Context) -> Outcome,
) -> Outcome {
    for round in 0..times {
        let seed = seed + round;
        let context = context.of_seed(seed);
        for case in cases {
            run(case, &context).map_err(|error| {
                let (name, set_up) = (case.name, context.set_up());
                format!("{name} failed, seed {seed} ({set_up}; again by `--repeat 1 --seed {seed}`): {error}")
            })?;
        }
        println!(
            "{} of {times}: {} cases passed, seed {seed} ({})",
            round + 1,
            cases.len(),
            context.set_up()
        );
    }
    Ok(())
}
