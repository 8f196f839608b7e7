//! Does what its first argument says.

mod acts;

use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let act = args.next().ok_or("name an act")?;
    match act.as_str() {
        "words" => acts::words()?,
        "files" => acts::files()?,
        "outside" => acts::outside(),
        "environment" => acts::environment(args),
        "time" => acts::time()?,
        "threads" => acts::threads(),
        "shared" => acts::shared(),
        "heap" => acts::heap(),
        "panic" => acts::panics(args.next().as_deref()),
        "parse" => println!("{}", args.next().unwrap_or_default().parse::<u32>()?),
        "exit" => std::process::exit(args.next().unwrap_or_default().parse()?),
        "abort" => std::process::abort(),
        "code" => return Ok(ExitCode::from(args.next().unwrap_or_default().parse::<u8>()?)),
        other => return Err(format!("no act {other}").into()),
    }
    Ok(ExitCode::SUCCESS)
}
