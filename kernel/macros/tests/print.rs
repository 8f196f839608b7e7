//! Printed lines from the macro to the host's text: the device's own `print.rs` over a transport that is a
//! function call, and the host's renderer.

#![allow(missing_docs, reason = "nobody's interface")]
#![allow(
    unexpected_cfgs,
    reason = "the device's files have features that this crate does not: they are without a heap here"
)]

extern crate self as hostcall_device;

mod double;
#[path = "../../device/src/print.rs"]
mod print;
#[path = "../../device/src/system.rs"]
mod system;

#[doc(hidden)]
pub mod __private {
    pub use crate::double::*;
    pub use crate::print::{AsAddress, AsBoth, AsValue, ByDevice, ByHost, Site, print, print_text};
}

mod call {
    pub fn enter(_: crate::target::Here) -> Result<(), hostcall_abi::CallError> {
        Ok(())
    }

    /// Of formats alone.
    pub fn call_rarely(
        method: &hostcall_abi::service::Method,
        argument_words: u8,
        [lane, tags, stream, text_bytes, ..]: [u64; hostcall_abi::MAX_WORDS],
        result_words: u8,
    ) -> Result<u64, hostcall_abi::CallError> {
        assert_eq!((method.name(), argument_words, result_words), ("System::register_format", 4, 1));
        use crate::system::SystemHandler;
        crate::Handler.register_format(lane, tags, stream as u32, text_bytes).map(u64::from)
    }
}

mod group {
    pub struct Group;

    impl Group {
        pub fn meet<T>(_: u64, _: T, body: impl FnOnce(Self) -> T) -> T {
            body(Self)
        }

        pub fn is_leader(&self) -> bool {
            true
        }

        pub fn of_leader(&self, value: u64) -> u64 {
            value
        }
    }
}

mod pieces {
    use hostcall_format::unformatted::LINE_HEAD_BYTES;

    pub fn send_texts(texts: &[&str]) -> Result<u64, hostcall_abi::CallError> {
        crate::HOST.with_borrow_mut(|host| host.text = texts.concat());
        Ok(7)
    }

    /// Of lines alone.
    pub struct Pieces(Vec<u8>);

    impl Pieces {
        pub fn new(service: u16, _: u32) -> Self {
            assert_eq!(service, hostcall_abi::service::number::LINE);
            Self(Vec::new())
        }

        pub fn number(&mut self, number: u64, bytes: u32) {
            self.0.extend(&number.to_le_bytes()[..bytes as usize]);
        }

        pub unsafe fn bytes(&mut self, start: *const u8, len: usize) {
            // SAFETY: the caller's promise.
            self.0.extend(unsafe { std::slice::from_raw_parts(start, len) });
        }

        pub fn finish(self) -> bool {
            let (words, values) = (self.0.as_chunks().0, &self.0[LINE_HEAD_BYTES..]);
            let [head, tags] = [words[0], words[1]].map(u64::from_le_bytes);
            let (id, bytes) = (head as u32, (head >> 32) as usize);
            assert_eq!(bytes, values.len());
            crate::HOST.with_borrow_mut(|host| {
                host.formats[id as usize - 1].2.render_bytes(tags, values, &mut host.out).unwrap();
            });
            true
        }
    }
}

mod post {
    pub fn post_words(service: u16, extra: u32, words: &[u64]) -> Result<(), hostcall_abi::CallError> {
        assert_eq!(service, hostcall_abi::service::number::PRINT);
        crate::HOST.with_borrow_mut(|host| {
            let (tags, _, format) = &host.formats[extra as usize - 1];
            format.render_words(*tags, words, &mut host.out).unwrap();
            host.posts += 1;
        });
        Ok(())
    }
}

/// Of a launch that is not over.
mod packet {
    pub fn is_over(_: crate::target::Here) -> bool {
        false
    }

    pub fn stop_stream(_: crate::target::Here) {}
}

mod target {
    #[derive(Clone, Copy)]
    pub struct Here;

    pub fn exit_lane() -> ! {
        unreachable!("the launch is not over")
    }

    pub struct Channel {
        pub epoch: u32,
    }

    pub fn here() -> Here {
        Here
    }

    pub fn seen(word: &std::sync::atomic::AtomicU64) -> u64 {
        word.load(std::sync::atomic::Ordering::Relaxed)
    }

    impl Here {
        pub fn channel(&self) -> Channel {
            Channel { epoch: crate::EPOCH.get() }
        }
    }
}

use hostcall_abi::CallError;
use hostcall_format::Format;
use hostcall_macros::{eprint, print, println};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

#[derive(Default)]
struct Host {
    formats: Vec<(u64, u32, Format)>,
    /// What was posted last.
    text: String,
    out: Vec<u8>,
    posts: usize,
}

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
    static EPOCH: Cell<u32> = const { Cell::new(1) };
}

struct Handler;

impl system::SystemHandler for Handler {
    fn panic(
        &self,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &str,
        _: &str,
    ) -> Result<(), CallError> {
        Err(CallError::NoSuchService)
    }
    fn exit(&self, _: i32) -> Result<(), CallError> {
        Err(CallError::NoSuchService)
    }
    fn main_returned(&self, _: i32) -> Result<(), CallError> {
        Err(CallError::NoSuchService)
    }
    fn line_too_long(&self, _: u32, _: u64) -> Result<(), CallError> {
        Err(CallError::NoSuchService)
    }
    fn register_format(&self, lane: u64, tags: u64, stream: u32, text_bytes: u64) -> Result<u32, CallError> {
        HOST.with_borrow_mut(|host| {
            assert_eq!((lane, text_bytes), (7, host.text.len() as u64));
            host.formats.push((tags, stream, Format::parse(&host.text).unwrap()));
            Ok(host.formats.len() as u32)
        })
    }
}

fn start() {
    HOST.set(Host::default());
    double::SERVICE.set(Some(Arc::new(system::System::serve(Handler))));
}

/// What was printed since the last time.
fn printed() -> String {
    HOST.with_borrow_mut(|host| String::from_utf8(std::mem::take(&mut host.out)).unwrap())
}

#[test]
fn lines_look_like_std() {
    start();
    macro_rules! check {
        ($(($($line:tt)*);)*) => {$(
            print!($($line)*);
            assert_eq!(printed(), format!($($line)*), "{}", stringify!($($line)*));
        )*};
    }
    let (x, name, width, pi) = (-7i8, "grün", 12usize, std::f64::consts::PI);
    let owned = String::from("owned");
    let pointer = 0x10 as *const u32;
    let to_x = &x;
    check! {
        ("plain {{}}");
        ("{} {x} {x:#x} {x:>5}", 1u32);
        ("{pi:.3} {pi:>width$.1$} {:e}", 1.5f32, 2);
        ("{name:>width$}|{name:?}|{:^9}|", owned.as_str());
        ("{} {:?} {}", true, 'é', &&5u8);
        ("{pointer:p} {:?} {0:p}", pointer);
        ("{:p} {:18p} {:#p}", &x, &pi, &width);
        ("{:p} {to_x} {:p}", &to_x, to_x);
        ("{:p} {:?}", std::ptr::NonNull::from(&x), std::ptr::NonNull::<u8>::dangling());
        ("{} {:?} {:x}", std::num::NonZeroI8::new(-3).unwrap(), std::num::NonZeroUsize::MAX, std::num::Wrapping(-3i16));
        (r"{}\n{y}", 1i64, y = x + 1);
        ("{}{}{}{}{}{}{}", 1, 2, 3, 4, 5, 6, 7);
        ("{0}{1}{0}{:.*}", 3, 0.12345, );
    }
    let (r#return, r#break, r#true, r#try) = (1, 2, "no", 4);
    check! {
        ("{return} {break} {true:>return$}");
        ("{try}");
    }
    println!();
    println!("end {}", if x < 0 { "negative" } else { "positive" });
    assert_eq!(printed(), "\nend negative\n");
    eprint!("to stderr");
    assert_eq!(HOST.with_borrow(|host| host.formats.last().unwrap().1), 2);
}

#[test]
fn what_the_host_does_not_know_is_formatted_by_the_device() {
    // Lines of text have sites that all tests share; each test's host is another channel's.
    EPOCH.set(3);
    start();
    #[derive(Debug)]
    #[allow(dead_code, reason = "shown")]
    struct Point {
        x: f32,
        at: Option<(u8, char)>,
    }
    struct Shown(u32);
    impl std::fmt::Display for Shown {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.pad("shown")?;
            write!(f, "{:#?}", self.0)
        }
    }
    fn any<T: std::fmt::Debug>(value: T) {
        print!("{value:?}");
    }
    let point = Point { x: 1.5, at: Some((7, 'x')) };
    let (width, dynamic): (usize, &dyn std::fmt::Display) = (9, &Shown(3));
    let function: fn(Shown) = drop;
    macro_rules! check {
        ($(($($line:tt)*);)*) => {$(
            print!($($line)*);
            assert_eq!(printed(), format!($($line)*), "{}", stringify!($($line)*));
        )*};
    }
    check! {
        ("{:?} {:?} {}", Some(1), None::<&str>, 5);
        ("{:?} {:?}", Ok::<u8, CallError>(1), Err::<u8, _>(CallError::Busy));
        ("{point:?} {point:#?} {:x?}", [255u8, 16]);
        ("{dynamic:>width$} {:<1$}|{:.*}|", Shown(1), 8, "text");
        ("{:?} {:>40} {:#x}", &[1.5f32, f32::NAN][..], u128::MAX, i128::MIN);
        ("{:?} {:p} {:p}", (1, 'a', "b", ()), &point, function);
        ("{} {{}} {:?}", "x".repeat(1000), vec!["long"; 100]);
        ("{0:?} {0:p}", &point.x as *const f32);
        ("{:?} {:?}", "as text", ["in an array"]);
    }
    println!("{:?}", Some("end"));
    assert_eq!(printed(), "Some(\"end\")\n");
    any(3u8);
    any(Some(4));
    assert_eq!(printed(), "3Some(4)");
    eprint!("{:?}", Some(1));
    assert_eq!(HOST.with_borrow(|host| host.formats.last().unwrap().1), 2);
}

#[test]
fn lines_that_the_host_formats_are_posted() {
    EPOCH.set(4);
    start();
    let posts = || HOST.with_borrow(|host| host.posts);
    println!("{} {:?} {:p}", 1u8, 2.5f32, &3);
    println!();
    assert_eq!(posts(), 2);
    println!("{:?}", (1u8,));
    assert_eq!(posts(), 2);
}

fn generic<T: print::Argument + std::fmt::Display>(value: T) -> String {
    println!("<{value}>");
    printed()
}

#[test]
fn a_site_registers_once_for_each_kind_and_channel() {
    start();
    let formats = || HOST.with_borrow(|host| host.formats.len());
    for i in 0..3u32 {
        assert_eq!(generic(i), format!("<{i}>\n"));
    }
    assert_eq!((formats(), HOST.with_borrow(|host| host.posts)), (1, 3));
    assert_eq!(generic(-1i64), "<-1>\n");
    assert_eq!(generic("text"), "<text>\n");
    assert_eq!(generic("text"), "<text>\n");
    assert_eq!(formats(), 3);
    EPOCH.set(2);
    start();
    assert_eq!(generic(7u8), "<7>\n");
    assert_eq!(formats(), 1);
}

#[test]
fn methods_have_the_places_by_which_the_device_calls_them() {
    let names = system::System::METHODS.map(|method| method.name());
    assert_eq!(names[1..4], ["System::exit", "System::register_format", "System::main_returned"]);
}
