//! Printing.

use crate::services::Gate;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::fmt::{self, Display};
use core::num::{NonZeroU16, Wrapping};
use core::ptr::NonNull;
use hostcall_device::print::Argument;
use hostcall_device::{CallError, Global, Lane, eprint, eprintln, io, kernel, print, println};

/// The lines of one lane, of every type and specification.
#[kernel]
pub fn print_types(_lane: &Lane) {
    let (unsigned, signed, float, letter, text) = (250u8, -7i32, 1.5f64, 'ß', "text");
    println!();
    println!("plain {{}}");
    println!("{} {} {} {} {}", unsigned, 65_535u16, u32::MAX, u64::MAX, 7usize);
    println!("{} {} {} {} {}", -1i8, i16::MIN, signed, i64::MIN, -7isize);
    println!("{} {} {} {} {}", float, 0.1f32, true, letter, f64::NAN);
    println!("{unsigned} {signed:>5} {float:.3} {letter:?} {text:?}");
    println!("{:#x} {:08b} {:o} {:X} {:#010x}", unsigned, 5u8, 8u32, 255u8, signed);
    println!("{:>6}|{:<6}|{:^6}|{:*^7}|{:+}", 1, 2, 3, 4, 5);
    println!("{:e} {:E} {:8.2} {:?} {:?}", 1234.5f64, 0.001f32, float, 1.0f64, 1e300);
    println!("{0} {1} {0} {name} {width:>1$}", 1, 4usize, name = text, width = 9);
    println!("{} {} {} {} {} {} {}", 1, 2, 3, 4, 5, 6, 7);
    println!("{text} and {} and {:>8}.", "another", text);
    println!("{:?} {:?}", "quote \" and \n", '\'');
    print!("no ");
    print!("end ");
    println!("until here");
    println!("{:1$} {:.*}", 7, 5usize, 1.23456f64);
    let reference = &&unsigned;
    println!("{reference} {}", &text);
    let (call, io) = (CallError::Failed(-3), io::Error::Os(28));
    println!("{call}, {io}: {call:?} {io:?} {} {:>30}", CallError::Busy, io::Error::NotFound);
}

/// Owned and shared values, and addresses.
#[kernel]
pub fn print_owned(_lane: &Lane) {
    let owned = String::from("owned");
    println!("{owned:?} {} {} {}", Box::new('x'), Cow::Borrowed("borrowed"), Rc::new(-5i8));
    println!("{} {:?} {:x}", NonZeroU16::MAX, Wrapping(7u8), Wrapping(-3i16));
    let array = [5u32, 6];
    let address = (&raw const array[1]).addr();
    println!("{:p} {:p} {:?}", &array[1], &raw const array[1], NonNull::from(&array[1]));
    println!("{address:#x}");
}

/// A point, with all that a derived `Debug` shows.
#[derive(Debug)]
pub struct Point {
    /// A number.
    pub x: f32,
    /// More.
    pub name: Option<&'static str>,
}

/// Has a `Display` that looks at the placeholder.
pub struct Percent(pub u32);

impl Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.precision() {
            Some(digits) => write!(f, "{:.digits$} %", self.0 as f32),
            None => f.pad("some %"),
        }
    }
}

/// Lines that the device formats, of each lane; one of them is longer than what needs no heap.
#[kernel]
pub fn print_by_device(lane: &Lane) {
    let id = lane.global_id();
    let point = Point { x: 1.5, name: Some("x") };
    println!("{id} {:?} {:?}", Some(id), None::<u8>);
    println!("{id} {point:?} {:?} {:?}", (1u8, 'x', "text"), [1.5f32, f32::INFINITY]);
    println!("{id} {} {:#x}", u128::MAX, i128::MIN);
    println!("{id} {:?} {:?}", Ok::<u8, CallError>(1), Err::<u8, _>(io::Error::Os(28)));
    println!("{id} {:>8}|{:.2}|{:>3$}", Percent(1), Percent(6), Percent(3), 6);
    println!("{id} {:?}", [u64::MAX; 20]);
    eprintln!("{id} {point:#?}");
    println!("{id} {}", format!("{:?} {:>5.1}", Some(&point), 2.25f64));
}

fn show<T: Argument + Display>(value: T) {
    println!("<{value}>");
}

/// Prints through a generic function, whose instances share a line of source.
#[kernel]
pub fn print_generic(_lane: &Lane) {
    for _ in 0..2 {
        show(1u8);
        show(-2i64);
        show("three");
        show(4.5f32);
        show('5');
    }
}

/// Each lane prints `count` numbered lines, of four lengths, from branches.
#[kernel]
pub fn print_in_order(lane: &Lane, count: u32) {
    let id = lane.global_id();
    for i in 0..count {
        match (i + id as u32) % 4 {
            0 => println!("lane {id} line {i}"),
            1 => println!("lane {} line {} {}", id, i, "text"),
            2 => println!("lane {id} line {i} {} {} {} {} {}", 1, 2, 3, 4, 5),
            _ => print!("lane {id} line {i}\n"),
        }
    }
}

/// Prints to both outputs.
#[kernel]
pub fn print_streams(lane: &Lane) {
    let id = lane.global_id();
    println!("out {id}");
    eprintln!("err {id}");
    eprint!("err {id} ");
    eprintln!("end");
    io::stdout().write(b"bytes out\n").unwrap();
    io::stderr().write(b"bytes err\n").unwrap();
    io::stdout().flush().unwrap();
}

/// Prints a line, and ends only when the host has seen it.
#[kernel]
pub fn print_while_running(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id();
    println!("seen {id}");
    out[id].set(Gate::pass(id as u64).unwrap());
}
