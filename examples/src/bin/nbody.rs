//! Lets bodies attract each other. The kernels tell how far they are, which a progress bar shows while they run, and how much
//! energy all bodies have, which is drawn. Places are compared with those that the host computes with more digits.

use clap::Parser;
use hostcall::{CallError, Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::nbody::{
    Progress, ProgressHandler, SOFTENING, TILE, add_energy, report, step,
};
use indicatif::{ProgressBar, ProgressStyle};
use plotters::prelude::*;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// Lets bodies attract each other
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// How many bodies
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    bodies: u32,
    /// How many steps
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// A drawing of the energy and of the bodies' places
    #[arg(long, default_value = "nbody.svg")]
    out: PathBuf,
}

/// Time that passes in a step.
const TIME: f32 = 1.0 / 1024.0;

/// Steps from one report to the next.
const REPORT_EVERY: u32 = 5;

// ANCHOR: handler
/// The host's side of the service: a bar, and what the kernels told.
#[derive(Clone)]
struct Watch {
    bar: ProgressBar,
    energies: Arc<Mutex<Vec<(u32, f64)>>>,
}

impl ProgressHandler for Watch {
    fn step(&self, number: u32, energy: f64) -> Result<(), CallError> {
        self.bar.set_position(number.into());
        self.bar.set_message(format!("energy {energy:.6}"));
        self.energies.lock().unwrap().push((number, energy));
        Ok(())
    }
}
// ANCHOR_END: handler

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} steps, {msg}, {eta} left")?;
    let bar = ProgressBar::new(arguments.steps.into()).with_style(style);
    let watch = Watch { bar, energies: Arc::default() };
    let device = hostcall_examples::device(&arguments.device)
        // It takes microseconds and never waits, so it needs no thread of its own.
        .inline_service(Progress::serve(watch.clone()))
        .open()?;
    let stream = device.stream()?;
    let (bodies, velocities) = start(arguments.bodies);
    let places = [device.upload(&bodies)?, device.upload(&bodies)?];
    let speeds = device.upload(&velocities)?;
    let energy = device.alloc_zeroed::<f64>(1)?;

    // ANCHOR: launches
    let grid = Grid::new(arguments.bodies.div_ceil(TILE as u32), TILE as u32);
    for number in 0..=arguments.steps {
        let [now, next] = [number % 2, (number + 1) % 2].map(|side| &places[side as usize]);
        if number % REPORT_EVERY == 0 {
            add_energy.launch(&stream, grid, (now, &speeds, &energy))?;
            report.launch(&stream, Grid::new(1, 1), (number, &energy))?;
        }
        if number < arguments.steps {
            step.launch(&stream, grid, (TIME, now, &speeds, next))?;
        }
    }
    stream.synchronize()?; // the posts were handled, too
    // ANCHOR_END: launches
    watch.bar.finish();

    let found = places[(arguments.steps % 2) as usize].read()?;
    let energies = watch.energies.lock().unwrap();
    draw(&arguments.out, &energies, &found)
        .map_err(|error| format!("cannot draw {}: {error}", arguments.out.display()))?;
    let expected = on_the_host(&bodies, &velocities, arguments.steps);
    let apart = |i: usize| {
        let square: f64 =
            (0..3).map(|axis| (f64::from(found[4 * i + axis]) - expected[i][axis]).powi(2)).sum();
        square.sqrt()
    };
    let mut apart: Vec<f64> = (0..expected.len()).map(apart).collect();
    apart.sort_unstable_by(f64::total_cmp);
    let (median, most) = (apart[apart.len() / 2], apart[apart.len() - 1]);
    let (first, last) = (energies[0].1, energies[energies.len() - 1].1);
    println!("{}: {} bodies, {} steps", arguments.out.display(), arguments.bodies, arguments.steps);
    println!(
        "energy {first:.6} at first, {last:.6} at last; places {median:.1e} from the host's, {most:.1e} at most"
    );
    // Of bodies that came close, small differences grow.
    if !(median < 1e-4 && most < 1e-1) {
        return Err("the host has the bodies elsewhere".into());
    }
    if energies.len() as u32 != arguments.steps / REPORT_EVERY + 1 {
        return Err(format!("{} reports came", energies.len()).into());
    }
    Ok(())
}

/// Bodies in a disc that turns: their places and masses, and their velocities.
fn start(count: u32) -> (Vec<f32>, Vec<f32>) {
    let (mut bodies, mut velocities) = (Vec::new(), Vec::new());
    let mass = 1.0 / count as f32;
    for i in 0..count {
        // Turned by the golden angle each time, they are spread evenly.
        let (radius, angle) = ((i as f32 + 0.5).sqrt() * mass.sqrt(), i as f32 * 2.399_963);
        let (y, x) = angle.sin_cos();
        bodies.extend([radius * x, radius * y, 0.05 * (i as f32 * 0.7).sin(), mass]);
        let speed = 0.9 * radius.sqrt();
        velocities.extend([-speed * y, speed * x, 0.0]);
    }
    (bodies, velocities)
}

/// Places after so many steps, with twice the digits.
fn on_the_host(bodies: &[f32], velocities: &[f32], steps: u32) -> Vec<[f64; 3]> {
    let number = |x: f32| f64::from(x);
    let mut places: Vec<[f64; 3]> =
        bodies.chunks_exact(4).map(|body| [number(body[0]), number(body[1]), number(body[2])]).collect();
    let masses: Vec<f64> = bodies.chunks_exact(4).map(|body| number(body[3])).collect();
    let mut velocities: Vec<[f64; 3]> =
        velocities.chunks_exact(3).map(|v| [number(v[0]), number(v[1]), number(v[2])]).collect();
    for _ in 0..steps {
        for (velocity, place) in velocities.iter_mut().zip(&places) {
            for (other, mass) in places.iter().zip(&masses) {
                let to = [other[0] - place[0], other[1] - place[1], other[2] - place[2]];
                let square = to.iter().map(|to| to * to).sum::<f64>() + number(SOFTENING);
                let scale = number(TIME) * mass / (square * square.sqrt());
                velocity.iter_mut().zip(to).for_each(|(velocity, to)| *velocity += scale * to);
            }
        }
        for (place, velocity) in places.iter_mut().zip(&velocities) {
            place.iter_mut().zip(velocity).for_each(|(place, velocity)| *place += number(TIME) * velocity);
        }
    }
    places
}

/// Draws how the energy changed, and where the bodies are.
fn draw(file: &Path, energies: &[(u32, f64)], bodies: &[f32]) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(file, (960, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(480);
    let (steps, first) = (energies[energies.len() - 1].0, energies[0].1);
    let change: Vec<(u32, f64)> =
        energies.iter().map(|(number, energy)| (*number, (energy - first) / first.abs())).collect();
    let most = change.iter().map(|(_, change)| change.abs()).fold(1e-6, f64::max);
    let mut chart = ChartBuilder::on(&left)
        .margin(16)
        .caption("Energy: its change, as a part of what it was", ("sans-serif", 16))
        .x_label_area_size(32)
        .y_label_area_size(64)
        .build_cartesian_2d(0..steps.max(1), -most..most)?;
    chart.configure_mesh().x_desc("step").y_label_formatter(&|change| format!("{change:.0e}")).draw()?;
    chart.draw_series(LineSeries::new(change, &BLUE))?;
    let mut chart = ChartBuilder::on(&right)
        .margin(16)
        .caption("The bodies, seen from above", ("sans-serif", 16))
        .build_cartesian_2d(-1.2f32..1.2, -1.2f32..1.2)?;
    let places = bodies.chunks_exact(4).map(|body| Circle::new((body[0], body[1]), 1, BLACK.filled()));
    chart.draw_series(places)?;
    area.present()?;
    Ok(())
}
