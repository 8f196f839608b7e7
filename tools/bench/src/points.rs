//! What trace points cost kernels that compute: a span for each tile of an n-body step and of a matrix product, while nobody records
//! the points and while a file does, beside the same kernels without.

use crate::median;
use crate::run::{Bed, Options, Result, Row};
use hostcall::trace::Tracer;
use hostcall::{Device, DeviceBuffer, Grid};
use hostcall_bench_kernels::compute::Four;
use hostcall_bench_kernels::points::{matmul_by_tiles, matmul_with_spans, nbody_by_tiles, nbody_with_spans};

/// Pairs of launches, with spans and without; the medians count.
const TURNS: usize = 25;

struct Sizes {
    bodies: usize,
    /// Rows of matrices, a multiple of 64.
    rows: usize,
    /// Bodies and strips of 16 numbers that a span lasts for while nobody records it.
    fine: [usize; 2],
}

const OF_GPU: Sizes = Sizes { bodies: 1 << 16, rows: 4096, fine: [1024, 16] };
const OF_SOFTWARE: Sizes = Sizes { bodies: 1 << 9, rows: 128, fine: [64, 2] };

/// Times each kernel with spans beside the same without.
pub fn points(options: &Options, add: &mut dyn FnMut(Row)) -> Result<()> {
    let sizes = if options.is_software() { &OF_SOFTWARE } else { &OF_GPU };
    let quiet = Bed::of(options, Device::builder(&options.device))?;
    let work = Work::new(&quiet, sizes)?;
    let [bodies, strips] = sizes.fine;
    let [with, without] = work.nbody(&quiet, bodies)?;
    add(Row::time("nbody_points_off_us", "us", with, Some(without)));
    let [with, without] = work.matmul(&quiet, strips)?;
    add(Row::time("matmul_points_off_us", "us", with, Some(without)));
    drop((work, quiet));
    let folder = tempfile::tempdir()?;
    let tracer = Tracer::builder().file(folder.path().join("trace"))?.start()?;
    let traced = Bed::of(options, Device::builder(&options.device).trace(&tracer))?;
    let work = Work::new(&traced, sizes)?;
    // A span a wave; its begin and its end are an event each.
    let rate = |workgroups: usize, us: f64| (workgroups * 8 * 2) as f64 / us;
    let [with, without] = work.nbody(&traced, sizes.bodies)?;
    add(Row::time("nbody_points_on_us", "us", with, Some(without)));
    add(Row::rate("nbody_points_on_per_s", "M/s", rate(sizes.bodies / 256, with), None));
    let [with, without] = work.matmul(&traced, sizes.rows / 16)?;
    add(Row::time("matmul_points_on_us", "us", with, Some(without)));
    add(Row::rate("matmul_points_on_per_s", "M/s", rate((sizes.rows / 64).pow(2), with), None));
    Ok(())
}

struct Work {
    sizes: &'static Sizes,
    bodies: DeviceBuffer<Four>,
    forces: DeviceBuffer<f32>,
    a: DeviceBuffer<Four>,
    b: DeviceBuffer<Four>,
    c: DeviceBuffer<f32>,
}

impl Work {
    fn new(bed: &Bed, sizes: &'static Sizes) -> Result<Self> {
        let (device, entries) = (&bed.device, sizes.rows * sizes.rows);
        let body = |i: usize| [0.37, 0.61, 0.13].map(|step| i as f32 * step % 1.0);
        let bodies: Vec<_> = (0..sizes.bodies).map(body).map(|[x, y, z]| Four([x, y, z, 1.0])).collect();
        Ok(Self {
            sizes,
            bodies: device.upload(&bodies)?,
            forces: device.alloc_zeroed(3 * sizes.bodies)?,
            a: device.alloc_zeroed(entries / 4)?,
            b: device.alloc_zeroed(entries / 4)?,
            c: device.alloc_zeroed(entries)?,
        })
    }

    /// Microseconds with a span for so many bodies, and without.
    fn nbody(&self, bed: &Bed, tile: usize) -> Result<[f64; 2]> {
        let grid = Grid::new((self.sizes.bodies / 256).max(1) as u32, 256);
        in_turn(|with| {
            let kernel = if with { &nbody_with_spans } else { &nbody_by_tiles };
            time(bed, || bed.launch(kernel, grid, (tile as u32, &self.bodies, &self.forces)))
        })
    }

    /// Microseconds with a span for so many strips, and without.
    fn matmul(&self, bed: &Bed, tile: usize) -> Result<[f64; 2]> {
        let tiles = (self.sizes.rows / 64) as u32;
        let grid = Grid::new(tiles * tiles, 256);
        in_turn(|with| {
            let kernel = if with { &matmul_with_spans } else { &matmul_by_tiles };
            time(bed, || bed.launch(kernel, grid, (tile as u32, tiles, &self.a, &self.b, &self.c)))
        })
    }
}

/// Microseconds of what `launch` puts on the stream.
fn time(bed: &Bed, launch: impl FnOnce() -> Result<()>) -> Result<f64> {
    Ok(bed.kernel_time(launch)?.as_secs_f64() * 1e6)
}

/// Medians of what is measured with spans and without, in turn.
fn in_turn(mut measure: impl FnMut(bool) -> Result<f64>) -> Result<[f64; 2]> {
    let (mut with, mut without) = (vec![], vec![]);
    for turn in 0..=TURNS {
        let (one, other) = (measure(true)?, measure(false)?);
        // The first loads the code.
        if turn > 0 {
            with.push(one);
            without.push(other);
        }
    }
    Ok([median(with), median(without)])
}
