//! Draws the Mandelbrot set. The kernels write the PNG themselves, by the file service; the host reads it with the crate `png`
//! and compares it with what it computes.

use clap::Parser;
use hostcall::services::Builtins;
use hostcall::{Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::mandelbrot::{View, begin, colour, end, rows};
use hostcall_examples_kernels::png::MAX_WIDTH;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Draws the Mandelbrot set
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// The picture's file
    #[arg(long, default_value = "mandelbrot.png")]
    out: PathBuf,
    /// Pixels in x
    #[arg(long, default_value_t = 960, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WIDTH / 2)))]
    width: u32,
    /// Pixels in y
    #[arg(long, default_value_t = 640, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    height: u32,
    /// The middle's real part
    #[arg(long, default_value_t = -0.748, allow_hyphen_values = true)]
    re: f64,
    /// The middle's imaginary part
    #[arg(long, default_value_t = 0.112, allow_hyphen_values = true)]
    im: f64,
    /// How large a part of the plane the picture's width is
    #[arg(long, default_value_t = 0.02)]
    across: f64,
}

/// Workgroups that draw. Each has the file open, of which kernels may have only so many.
const WORKGROUPS: u32 = 128;

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { width, height, .. } = *arguments;
    let view = View {
        centre: [arguments.re, arguments.im],
        step: arguments.across / f64::from(width),
        size: [width, height],
    };
    // ANCHOR: run
    let folder = match arguments.out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = arguments.out.file_name().ok_or("--out has no file's name")?.as_bytes();
    // Kernels reach the files below this folder, and no others.
    let cannot = |error| format!("cannot write to {}: {error}", folder.display());
    let builtins = Builtins::builder().dir(folder).build().map_err(cannot)?;
    let device = hostcall_examples::device(&arguments.device).builtins(builtins).open()?;
    let stream = device.stream()?;
    let name = device.upload(name)?;
    let sums = device.alloc_zeroed::<u32>(2 * height as usize)?;
    begin.launch(&stream, Grid::new(1, 1), (&name, view))?;
    let grid = Grid::new(WORKGROUPS.min(height), 256).workgroup_memory(width);
    rows.launch(&stream, grid, (&name, view, &sums))?;
    end.launch(&stream, Grid::new(1, 1), (&name, view, &sums))?;
    stream.synchronize()?;
    // ANCHOR_END: run

    let found = read(&arguments.out, view.size)?;
    let all = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let others = all.zip(&found).filter(|((x, y), found)| colour(&view, *x, *y) != **found).count();
    println!(
        "{}: {width} by {height} pixels, {others} of them not as the host has them",
        arguments.out.display()
    );
    // A GPU may compute `a * b + c` with one rounding instead of two, which tells at the set's border.
    if others > found.len() / 1000 {
        return Err("the host draws another picture".into());
    }
    Ok(())
}

/// Pixels of the file, which is a PNG of this size.
fn read(file: &Path, size: [u32; 2]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut decoder = png::Decoder::new(BufReader::new(File::open(file)?));
    decoder.set_transformations(png::Transformations::IDENTITY);
    decoder.ignore_checksums(false);
    let mut reader = decoder.read_info()?;
    let mut pixels = vec![0; reader.output_buffer_size().ok_or("the picture is too large")?];
    let info = reader.next_frame(&mut pixels)?;
    reader.finish()?;
    if [info.width, info.height] != size || info.color_type != png::ColorType::Indexed {
        return Err(format!(
            "the picture has {} by {} pixels of {:?}",
            info.width, info.height, info.color_type
        )
        .into());
    }
    Ok(pixels)
}
