//! Runs the functions as kernels, compares them with the host's bit by bit, and measures the errors of the fast forms.

use crate::functions::functions;
use crate::points::{Where, point, special};
use crate::{Real, in_parts, threads};
use conformance::math::{doubles, fast_forms, floats, math_doubles, math_fast, math_floats};
use hostcall::Grid;
use hostcall::device::SoftwareDeviceConfig;
use hostcall_conformance::fast::FastForm;
use hostcall_conformance::{Context, Session, read};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most lanes of a launch, each with a point. They bound the results in memory, some 400 bytes a lane.
const LANES: u64 = 1 << 17;

/// Lanes of a workgroup.
const WORKGROUP: u32 = 128;

/// Points that differ, of one function.
#[derive(Clone, Debug)]
pub struct Difference {
    /// How many.
    pub points: u64,
    /// The first of them: arguments, the device's bits and the host's.
    pub first: String,
}

/// The largest error of a fast form.
#[derive(Clone, Debug)]
pub struct FastError {
    /// In what the form's bound is in, divided by that bound.
    pub of_bound: f64,
    /// The error, its bound, and the arguments.
    pub text: String,
}

/// Where the arguments of all functions lie.
fn places<T: Real>() -> Vec<Where> {
    functions::<T>().into_iter().flat_map(|function| function.places).collect()
}

/// The points of a launch, whose lanes fill workgroups.
fn pairs<T: Real>(indices: Range<u64>, places: &[Where]) -> (Vec<T>, Vec<T>) {
    let special = special::<T>();
    let part =
        |indices: Range<u64>| indices.map(|i| point(i, &special, places)).map(|[x, y, _]| (x, y)).collect();
    let parts: Vec<Vec<(T, T)>> = in_parts(indices, part);
    parts.into_iter().flatten().unzip()
}

/// The indices of each launch, for at least so many points.
fn launches(points: u64) -> impl Iterator<Item = Range<u64>> {
    let end = points.next_multiple_of(WORKGROUP.into());
    (0..end).step_by(LANES as usize).map(move |begin| begin..end.min(begin + LANES))
}

fn grid(indices: &Range<u64>) -> Grid {
    Grid::new((indices.end - indices.start) as u32 / WORKGROUP, WORKGROUP)
}

/// Opens the device; the software device has a thread for each core.
fn open(context: &Context) -> Result<Session, String> {
    let software = SoftwareDeviceConfig { threads: threads(), ..context.software() };
    context.open(|device| device.software(software))
}

fn text(error: hostcall::Error) -> String {
    error.to_string()
}

type Differences = BTreeMap<String, Difference>;

fn note(differences: &mut Differences, name: String, points: u64, first: impl FnOnce() -> String) {
    let difference = differences.entry(name).or_insert_with(|| Difference { points: 0, first: first() });
    difference.points += points;
}

macro_rules! compare {
    ($function:ident, $t:ident, $kernel:ident, $host:ident) => {
        /// Runs all functions on the device at so many points, and returns those whose results differ from the host's, which
        /// all cores compute. `done` is told how many points are done.
        ///
        /// # Errors
        /// When the device cannot be used.
        pub fn $function(context: &Context, points: u64, done: impl Fn(u64)) -> Result<Differences, String> {
            let session = open(context)?;
            let (places, mut differences) = (places::<$t>(), BTreeMap::new());
            let mut each = 0;
            $host(1.0, 1.0, |_, _| each += 1);
            for indices in launches(points) {
                let (x, y) = pairs::<$t>(indices.clone(), &places);
                let (xs, ys) =
                    (session.device.upload(&x).map_err(text)?, session.device.upload(&y).map_err(text)?);
                let out = session.out(grid(&indices), each)?;
                session.run($kernel, grid(&indices), (&xs, &ys, &out))?;
                let found = read(&out)?;
                let compare = |lanes: Range<u64>| {
                    let mut differences = BTreeMap::new();
                    for lane in lanes.start as usize..lanes.end as usize {
                        let (x, y, mut found) = (x[lane], y[lane], found[lane * each..].iter());
                        $host(x, y, |name, expected| {
                            let found = *found.next().expect("the kernel computes what the host does");
                            if found != expected {
                                note(&mut differences, format!("{name} ({})", stringify!($t)), 1, || {
                                    format!("{x:e}, {y:e}: {found:#x}, not {expected:#x}")
                                });
                            }
                        });
                    }
                    differences
                };
                for (name, more) in in_parts(0..x.len() as u64, compare).into_iter().flatten() {
                    note(&mut differences, name, more.points, || more.first);
                }
                done(indices.end);
            }
            Ok(differences)
        }
    };
}

compare!(compare_floats, f32, math_floats, floats);
compare!(compare_doubles, f64, math_doubles, doubles);

/// Runs the fast forms on the device at so many points, and returns their largest errors. `done` is told how many points are
/// done.
///
/// # Errors
/// When the device cannot be used.
pub fn measure_fast(
    context: &Context,
    points: u64,
    done: impl Fn(u64),
) -> Result<Vec<(&'static str, FastError)>, String> {
    let session = open(context)?;
    let places = places::<f32>();
    let mut names = Vec::new();
    fast_forms(1.0, 1.0, |name, _| names.push(name));
    let forms: Option<Vec<FastForm>> = names.iter().map(|name| FastForm::named(name)).collect();
    let forms = forms.ok_or("a fast form has no bound")?;
    let none = || vec![FastError { of_bound: 0.0, text: String::new() }; forms.len()];
    let mut errors = none();
    for indices in launches(points) {
        let (x, y) = pairs::<f32>(indices.clone(), &places);
        let (xs, ys) = (session.device.upload(&x).map_err(text)?, session.device.upload(&y).map_err(text)?);
        let out = session.device.alloc_zeroed::<f32>(x.len() * forms.len()).map_err(text)?;
        session.run(math_fast, grid(&indices), (&xs, &ys, &out))?;
        let found = out.read().map_err(text)?;
        let measure = |lanes: Range<u64>| {
            let mut errors = none();
            for lane in lanes.start as usize..lanes.end as usize {
                let (x, y, found) = (x[lane], y[lane], &found[lane * forms.len()..]);
                for ((form, worst), found) in forms.iter().zip(&mut errors).zip(found) {
                    let (Some(error), bound) = (form.error(x, y, *found), form.bound(x)) else { continue };
                    if error / bound > worst.of_bound {
                        let text = format!("{error:.3e} of {bound:.3e} at {x:e}, {y:e}");
                        *worst = FastError { of_bound: error / bound, text };
                    }
                }
            }
            errors
        };
        for part in in_parts(0..x.len() as u64, measure) {
            for (worst, error) in errors.iter_mut().zip(part) {
                if error.of_bound > worst.of_bound {
                    *worst = error;
                }
            }
        }
        done(indices.end);
    }
    Ok(names.into_iter().zip(errors).collect())
}
