//! The same functions as kernels, compared with the host's bit by bit, and the errors of the fast forms.

use crate::Real;
use crate::functions::functions;
use crate::points::{Where, point, special};
use conformance::math::{doubles, fast_forms, floats, math_doubles, math_fast, math_floats};
use hostcall::Grid;
use hostcall_conformance::fast::FastForm;
use hostcall_conformance::{Context, Session, read};
use std::collections::BTreeMap;
use std::ops::Range;

/// Lanes of a launch, each with a point.
const LANES: u64 = 1 << 15;

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

fn pairs<T: Real>(indices: Range<u64>, places: &[Where]) -> (Vec<T>, Vec<T>) {
    let special = special::<T>();
    indices.map(|i| point(i, &special, places)).map(|[x, y, _]| (x, y)).unzip()
}

fn text(error: hostcall::Error) -> String {
    error.to_string()
}

fn note(differences: &mut BTreeMap<String, Difference>, name: String, first: impl FnOnce() -> String) {
    let difference = differences.entry(name).or_insert_with(|| Difference { points: 0, first: first() });
    difference.points += 1;
}

macro_rules! compare {
    ($function:ident, $t:ident, $kernel:ident, $host:ident) => {
        /// Runs all functions on the device at so many points, and returns those whose results differ from the host's.
        ///
        /// # Errors
        /// When the device cannot be used.
        pub fn $function(context: &Context, points: u64) -> Result<BTreeMap<String, Difference>, String> {
            let session = context.open(|device| device)?;
            let (places, mut differences) = (places::<$t>(), BTreeMap::new());
            let mut names = Vec::new();
            $host(1.0, 1.0, |name, _| names.push(name));
            for begin in (0..points).step_by(LANES as usize) {
                let (x, y) = pairs::<$t>(begin..begin + LANES, &places);
                let (xs, ys) =
                    (session.device.upload(&x).map_err(text)?, session.device.upload(&y).map_err(text)?);
                let out = session.out(grid(), names.len())?;
                session.run($kernel, grid(), (&xs, &ys, &out))?;
                for (i, found) in read(&out)?.chunks(names.len()).enumerate() {
                    let mut at = 0;
                    $host(x[i], y[i], |name, expected| {
                        if found[at] != expected {
                            note(&mut differences, format!("{name} ({})", stringify!($t)), || {
                                format!("{:e}, {:e}: {:#x}, not {expected:#x}", x[i], y[i], found[at])
                            });
                        }
                        at += 1;
                    });
                }
            }
            Ok(differences)
        }
    };
}

compare!(compare_floats, f32, math_floats, floats);
compare!(compare_doubles, f64, math_doubles, doubles);

fn grid() -> Grid {
    Grid::new(LANES as u32 / WORKGROUP, WORKGROUP)
}

/// Runs the fast forms on the device at so many points, and returns their largest errors.
///
/// # Errors
/// When the device cannot be used.
pub fn measure_fast(context: &Context, points: u64) -> Result<Vec<(&'static str, FastError)>, String> {
    let session: Session = context.open(|device| device)?;
    let places = places::<f32>();
    let mut errors = Vec::new();
    fast_forms(1.0, 1.0, |name, _| errors.push((name, FastError { of_bound: 0.0, text: String::new() })));
    let forms: Option<Vec<FastForm>> = errors.iter().map(|(name, _)| FastForm::named(name)).collect();
    let forms = forms.ok_or("a fast form has no bound")?;
    for begin in (0..points).step_by(LANES as usize) {
        let (x, y) = pairs::<f32>(begin..begin + LANES, &places);
        let (xs, ys) = (session.device.upload(&x).map_err(text)?, session.device.upload(&y).map_err(text)?);
        let out = session.device.alloc_zeroed::<f32>(x.len() * forms.len()).map_err(text)?;
        session.run(math_fast, grid(), (&xs, &ys, &out))?;
        for (i, found) in out.read().map_err(text)?.into_iter().enumerate() {
            let (form, (_, worst)) = (&forms[i % forms.len()], &mut errors[i % forms.len()]);
            let (x, y) = (x[i / forms.len()], y[i / forms.len()]);
            let (Some(error), bound) = (form.error(x, y, found), form.bound(x)) else { continue };
            if error / bound > worst.of_bound {
                let text = format!("{error:.3e} of {bound:.3e} at {x:e}, {y:e}");
                *worst = FastError { of_bound: error / bound, text };
            }
        }
    }
    Ok(errors)
}
