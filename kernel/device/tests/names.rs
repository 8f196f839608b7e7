//! Users' names that expansions could meet: kernels, parameters, services, methods and types that have the names which
//! the expansions and the device crate use, or those of the standard library.

#![allow(dead_code, non_camel_case_types, missing_docs, reason = "the names are what this is about")]
#![allow(
    clippy::too_many_arguments,
    clippy::upper_case_acronyms,
    clippy::len_without_is_empty,
    clippy::should_implement_trait,
    reason = "the names are what this is about"
)]

use hostcall_device::{Global, Lane, Wire, eprintln, kernel, println, service};

/// Types with the names of the prelude's, which an expansion must not mean.
mod types {
    use hostcall_device::{Plain, Wire};

    macro_rules! types {
        ($($name:ident)*) => {$(
            #[derive(Clone, Copy, Debug, PartialEq, Wire, Plain)]
            #[repr(C)]
            pub struct $name {
                pub words: u64,
                pub at: u64,
            }
        )*};
    }

    types! { Result Option Ok Err Some None Vec String Box Send Sync Future Arc Self_ H Served AsyncServed Handler BASE INFO }

    /// A type of one word with the name of a number.
    #[derive(Clone, Copy, Debug, PartialEq, Wire, Plain)]
    #[repr(C)]
    pub struct r#type {
        pub r#match: u8,
    }
}

mod kernels {
    use super::types::*;
    use hostcall_device::kernel;
    // Not the prelude's types, but those above: `Lane` and `Global` under other names, too.
    use hostcall_device::{Global as Word, Lane as Me};

    macro_rules! kernels {
        ($($name:ident)*) => {$(
            // Every kernel has every name as a parameter or not; here its own.
            #[kernel]
            fn $name(lane: &Me, $name: &[u64], out: &[Word<u64>]) {
                out[lane.global_id()].set($name[0]);
            }
        )*};
    }

    kernels! {
        arguments entry info lane launch run types value_0 values block body call words bytes request reply result i
        this self_ site at hash method methods handler core std alloc hostcall hostcall_device kernel_info new main_
        enter_kernel name path r#move r#type r#loop r#fn __hostcall_lane __hostcall_run __hostcall_types __hostcall
    }

    /// The names of the kernels above as parameters.
    #[kernel]
    fn parameters(
        _: &Me,
        lane: Result,
        launch: Option,
        run: Vec,
        types: String,
        words: u64,
        i: u32,
        __hostcall_lane: &[u64],
        value_0: &u64,
        r#move: bool,
        parameters: (u8, u8),
        info: Ok,
        entry: r#type,
    ) {
        let _ =
            (lane, launch, run, types, words, i, __hostcall_lane, value_0, r#move, parameters, info, entry);
    }

    /// Its own name, written as a raw one.
    #[kernel]
    fn raw(_: &Me, r#raw: u64, r#lane: u64) {
        let _ = (raw, lane);
    }
}

mod instances {
    use super::types::*;
    use hostcall_device::{Lane as Me, Plain, kernel};

    /// A type with the name of a type parameter.
    #[derive(Clone, Copy, Plain)]
    #[repr(C)]
    pub struct T {
        pub at: u64,
    }

    #[kernel(instances(run = <T, Result>, block = <Option, T>))]
    fn lane<T: Plain + Copy, Block: Plain>(_: &Me, launch: T, blocks: &[Block], raw_0: (u8, u16)) {
        let _ = (launch, blocks, raw_0);
    }
}

mod services {
    use super::types::{self, *};
    use hostcall_device::{CallError, service};

    #[service]
    pub trait Result_ {
        fn call(request: Result, reply: Option, result: Ok) -> Result;
        fn posts(words: u64, bytes: &[u8], handler: &str, method: &mut [u8]) -> Option;
        fn methods(i: u8, at: r#type) -> r#type;
        fn r#match(r#type: u64, r#fn: String);
        fn post(this: Vec, core: Box, hostcall: u8, timeout_us: Send);
        fn clone(self_: u64) -> u64;
        fn into(x: u64, out_capacity: u64, out: &mut [u8]);
        fn len(caller: &Caller, __hostcall_handler: u64, __hostcall_result: &str, value: H) -> Served;
    }

    /// Constants with the names of what expansions declare.
    pub mod constants {
        #![allow(non_upper_case_globals, reason = "the names are what this is about")]
        pub const words: u8 = 1;
        pub const request: u8 = 2;
        pub const result: u8 = 3;
        pub const lane: u8 = 4;
        pub const i: u8 = 5;

        // No parameter of its own is called `lane`.
        #[hostcall_device::service]
        pub trait WithLane {
            fn note(at: u64);
        }

        // Raw or not, a name is the same.
        #[hostcall_device::service]
        pub trait WithRawLane {
            fn note(r#lane: u64, r#timeout_us: u64);
        }

        #[hostcall_device::service]
        pub trait WithConstants {
            fn call(words: u64, request: u64, i: &str) -> u64;
            fn note(lane: u64, result: u64);
        }

        #[hostcall_device::kernel]
        fn with_constants(lane: &hostcall_device::Lane, words: &[u64], i: u32) {
            let _ = (lane, words, i);
        }
    }

    pub struct Handles;

    type Answer<T> = ::core::result::Result<T, CallError>;

    impl Result_Handler for Handles {
        fn call(&self, request: Result, _: Option, _: Ok) -> Answer<Result> {
            ::core::result::Result::Ok(request)
        }
        fn posts(&self, words: u64, _: &[u8], _: &str, _: &mut hostcall::Output<'_>) -> Answer<Option> {
            ::core::result::Result::Ok(Option { words, at: 0 })
        }
        fn methods(&self, _: u8, at: types::r#type) -> Answer<types::r#type> {
            ::core::result::Result::Ok(at)
        }
        fn r#match(&self, _: u64, _: String) -> Answer<()> {
            ::core::result::Result::Ok(())
        }
        fn post(&self, _: Vec, _: Box, _: u8, _: Send) -> Answer<()> {
            ::core::result::Result::Ok(())
        }
        fn clone(&self, self_: u64) -> Answer<u64> {
            ::core::result::Result::Ok(self_)
        }
        fn into(&self, _: u64, _: u64, _: &mut hostcall::Output<'_>) -> Answer<()> {
            ::core::result::Result::Ok(())
        }
        fn len(&self, caller: &hostcall::Caller, at: u64, _: &str, _: H) -> Answer<Served> {
            ::core::result::Result::Ok(Served { words: u64::from(caller.lane), at })
        }
    }
}

/// A print line between names that its expansion could meet.
#[kernel]
fn prints(lane: &Lane, argument_0: u64, site: u64) {
    #[allow(non_upper_case_globals, reason = "the names are what this is about")]
    const __hostcall_argument_1: u64 = 1;
    let site_ = lane.index();
    let (device, stream) = (site, argument_0);
    println!("{argument_0} {site_} {device} {0} {stream:>1$}", argument_0, __hostcall_argument_1 as usize);
    eprintln!();
}

/// Keywords as the names of variables and arguments, as `format!` takes them.
#[kernel]
fn prints_keywords(_: &Lane, r#type: u64, r#fn: u64) {
    println!("{type} {fn} {match} {impl:>loop$} {type}", r#match = 1, impl = 2, loop = 3);
    // Those that are expressions by themselves are variables, too.
    for r#continue in 0..2 {
        let (r#return, r#break, r#true, r#try) = (1, 2.5, "true", 4);
        println!("{return} {break} {continue} {true} {try:>return$}");
        hostcall_device::event!("{return} {break} {continue}");
    }
}

/// Values of trace points that are constants with likely names.
#[kernel]
fn traces(_: &Lane) {
    const POINT: f64 = 1.0;
    hostcall_device::counter!("points", POINT);
    hostcall_device::event!("{POINT} {}", POINT);
}

/// What macros make of arguments that are more than a token, which the compiler passes as groups.
mod fragments {
    macro_rules! service {
        ($name:ident($caller:ty, $text:ty, $bytes:ty, $output:ty) -> $result:ty) => {
            #[hostcall_device::service]
            pub trait $name {
                fn call(caller: $caller, text: $text, bytes: $bytes, output: $output) -> $result;
                fn note(caller: $caller, number: u64) -> $result;
            }
        };
    }

    service!(Fragments(&Caller, &str, &[u8], &mut [u8]) -> ());

    macro_rules! kernel {
        ($name:ident: $text:literal, $krate:path, $lanes:expr) => {
            #[hostcall_device::kernel(name = $text, crate = $krate, max_lanes = $lanes)]
            pub fn $name(_: &hostcall_device::Lane) {}
        };
    }

    kernel!(kernel_of_fragments: "of_fragments", hostcall_device, 2 * 32);

    pub fn post() -> Result<(), hostcall_device::CallError> {
        Fragments::post_note(1)
    }
}

/// An enum whose fields have the names of the expansion's variables.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
enum Event {
    Ok { words: u64, at: u8, field_0: u16 },
    None,
    r#Type(u8),
}

#[service]
trait Events {
    fn event(event: Event, start: u64) -> Option<Event>;
}

#[test]
fn services_answer_under_any_name() {
    use hostcall::service::Service;
    let service = services::Result_::serve(services::Handles);
    assert_eq!(service.methods().len(), 8);
    assert_eq!(service.methods()[3].name(), "Result_::match");
    assert_eq!(services::constants::WithConstants::METHODS.len(), 2);
    assert_eq!(services::constants::WithLane::METHODS.len(), 1);
    assert_eq!(fragments::Fragments::METHODS.len(), 2);
}

#[test]
fn options_may_come_from_a_macro() {
    let kernel = fragments::kernel_of_fragments;
    assert_eq!((kernel.name(), kernel.info().max_lanes), ("of_fragments", 64));
}

#[test]
fn enums_survive_under_any_name() {
    for event in [Event::Ok { words: 1, at: 2, field_0: 3 }, Event::None, Event::r#Type(4)] {
        let mut words = [0; <Event as Wire>::WORDS];
        event.to_words(&mut words);
        assert_eq!(Event::from_words(&words), Some(event));
    }
}

/// Keeps the import of [`Global`] beside the module that imports it under another name.
fn _unused(_: &Global<u64>) {}
