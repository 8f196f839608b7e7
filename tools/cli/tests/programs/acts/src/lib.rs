//! Does what its first argument names.

#![no_std]

extern crate alloc;

use alloc::format;
use core::hint::black_box;
use core::time::Duration;
use hostcall_device::waits::flag;
use hostcall_device::{Lane, env, eprintln, fs, io, print, println, process, time};

#[hostcall_device::main(workgroups = 1, lanes = 4)]
fn main(lane: &Lane) -> i32 {
    let arguments = env::args_bytes().expect("arguments");
    let argument =
        |index: usize| arguments.get(index).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or("");
    let first = lane.global_id() == 0;
    let act = match argument(1).strip_prefix("say-") {
        Some(act) => {
            if first {
                println!("{} begins", act);
            }
            act
        }
        None => argument(1),
    };
    match act {
        "arguments" if first => {
            for argument in arguments.iter().skip(2) {
                io::stdout().write(&[b"<", &argument[..], b">\n"].concat()).expect("an output");
            }
        }
        "grid" => println!(
            "{} of {}, {} of {}, wave of {}",
            lane.global_id(),
            lane.grid_lanes(),
            format!("{:?}", lane.position()).as_str(),
            format!("{:?}", lane.workgroup_size()).as_str(),
            lane.wave_size()
        ),
        "return" => return if first { 7 } else { 0 },
        "exit" if first => process::exit(9),
        // The other lanes are ended by the first one's exit.
        "exit" => loop {
            lane.pause();
        },
        "forever" => loop {
            black_box(());
        },
        "ask" => loop {
            let _ = time::now_ns();
        },
        "sleep" => time::sleep(Duration::from_secs(3600)),
        // Of the rank and the number that follow.
        "signal" => {
            let number = |index| argument(index).parse().unwrap_or(0);
            lane.wait_for(flag("signal").peer(number(2)).sequence(number(3).into()), || false);
        }
        "panic" if first => panic!("the sum is {}", 3),
        "orders" if first => panic!("\u{1b}[31mred\n{}", 3),
        "index" if first => _ = black_box(&[1, 2, 3][..])[black_box(3)],
        "null" => {
            // SAFETY: none: the program asks for the fault.
            unsafe { black_box(core::ptr::null_mut::<u32>()).write_volatile(1) }
        }
        "env" if first => {
            let mut buffer = [0; 100];
            let value = env::var_bytes(&arguments[2], &mut buffer).expect("a variable");
            io::stdout().write(value.unwrap_or(b"none")).expect("an output");
            println!();
        }
        "deep" if first => println!("{}", deep(200)),
        "built" if first => {
            println!("extra {}, debug {}", cfg!(feature = "extra"), cfg!(debug_assertions));
        }
        "echo" if first => {
            let mut bytes = [0; 1000];
            while let Ok(len @ 1..) = io::stdin().read(&mut bytes) {
                io::stdout().write(&bytes[..len]).expect("an output");
            }
        }
        "both" if first => {
            print!("to stdout");
            eprintln!("to stderr");
        }
        "lines" if first => loop {
            println!("another line");
        },
        "much" if first => (0..20_000).for_each(|_| println!("another line")),
        "read" if first => match fs::read_to_string(argument(2)) {
            Ok(text) => print!("{}", text.as_str()),
            Err(error) => {
                eprintln!("{}", error.message());
                return 1;
            }
        },
        _ => {}
    }
    0
}

/// Takes more than a kibibyte of stack for each step.
fn deep(steps: u64) -> u64 {
    let room = black_box([steps; 128]);
    if steps == 0 { 0 } else { deep(steps - 1) + room[0] / steps }
}
