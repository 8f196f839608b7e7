//! Does what its first argument says.

mod acts;
mod net;
mod threads;

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
        "threads" => threads::all(args.next().unwrap_or_default().parse()?),
        "crowd" => {
            let [count, rounds] = [args.next(), args.next()].map(|number| number.unwrap_or_default().parse());
            threads::crowd(count?, rounds?);
        }
        "too-many" => threads::too_many(),
        "detached" => drop(std::thread::spawn(|| {
            loop {
                std::thread::yield_now()
            }
        })),
        "panic-in-thread" => {
            let thread = std::thread::Builder::new().name("other".into());
            let thread = thread.spawn(|| panic!("in a thread"));
            let _ = thread?.join();
        }
        "shared" => acts::shared(),
        "heap" => acts::heap(),
        "mathematics" => acts::mathematics(),
        "net" => net::all()?,
        "net-to" => net::reach(args)?,
        "net-listen" => net::listen(args),
        "net-waits" => net::wait_beside(&args.next().unwrap_or_default())?,
        "panic" => acts::panics(args.next().as_deref()),
        "parse" => println!("{}", args.next().unwrap_or_default().parse::<u32>()?),
        "next" => println!("{}", ordinary_parts::ordinary_next(args.next().unwrap_or_default().parse()?)),
        "exit" => std::process::exit(args.next().unwrap_or_default().parse()?),
        "abort" => std::process::abort(),
        "code" => return Ok(ExitCode::from(args.next().unwrap_or_default().parse::<u8>()?)),
        other => return Err(format!("no act {other}").into()),
    }
    Ok(ExitCode::SUCCESS)
}
