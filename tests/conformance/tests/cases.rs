//! Every case of the suite as a test, on the software device in several settings.

use hostcall::device::Faults;
use hostcall_conformance::{CASES, Context, cancels, foreign, stress};
use libtest_mimic::{Arguments, Failed, Trial};

/// Settings by name.
fn settings() -> Vec<(String, Context)> {
    let context = |wave_size, faults| Context { wave_size, faults, ..Context::default() };
    let plain = [32, 64].map(|size| (format!("wave{size}"), context(size, Faults::default())));
    let delays = [1, 2, 3].map(|seed| {
        let faults = Faults { seed, delay_lanes: 0.05, ..Faults::default() };
        (format!("delays{seed}"), context(if seed == 2 { 64 } else { 32 }, faults))
    });
    let lost = Faults { lose_notifications: 1.0, ..Faults::default() };
    // What kernels compute does not depend on whether somebody looks.
    let traced = Context { is_traced: true, ..Context::default() };
    let others = [("lost".to_owned(), context(32, lost)), ("traced".to_owned(), traced)];
    plain.into_iter().chain(delays).chain(others).collect()
}

fn trial(name: String, test: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(name, || test().map_err(Failed::from))
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    // Rings once in a second, so that all else has to be announced.
    let bells =
        Context { faults: Faults { bell_period_ns: 1 << 30, ..Faults::default() }, ..Context::default() };
    for case in CASES
        .iter()
        .filter(|case| ["posts::", "print::", "slots::"].iter().any(|of| case.name.starts_with(of)))
    {
        let context = bells.clone();
        trials.push(trial(format!("bells::{}", case.name), move || context.run(case.run)));
    }
    for device in ["cpu", "gfx942"] {
        let context = Context { device: device.into(), ..Context::default() };
        let replay = move || foreign::run(&context, 500, None).map(drop);
        trials.push(trial(format!("{device}::foreign"), replay));
    }
    for (setting, context) in settings() {
        for case in CASES {
            let context = context.clone();
            trials.push(trial(format!("{setting}::{}", case.name), move || context.run(case.run)));
        }
        let cancelled = context.clone();
        let cancel = move || cancels::on_a_device(&cancelled, cancelled.faults.seed, 400).map(drop);
        trials.push(trial(format!("{setting}::cancels"), cancel));
        let load = stress::Load { calls: 300_000, rounds: 50, workgroups: 264 };
        trials.push(trial(format!("{setting}::stress"), move || stress::run(&context, load).map(drop)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
