//! Runs the benchmarks of a device named as the first argument, default `cpu`.

fn main() -> hostcall_bench::Result<()> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    let options = hostcall_bench::Options { device, repeats: 5 };
    hostcall_bench::bench(&options, |row| println!("{row:?}"))?;
    Ok(())
}
