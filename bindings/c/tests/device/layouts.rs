//! What the header says of layouts, and compilers of it.

use crate::common::{output, run, source};
use crate::waves::{Memory, WAVES};
use crate::{FLAGS, temporary};
use hostcall::hostcall_device::services::{Foreign, TracePoints};
use hostcall_abi::context::{self, ContextParams, PointsParams};
use hostcall_abi::layout::{
    self, FIRST_CALL_WORDS, HOME_SLOT_BYTES, HomeSlotWords, LAP_WORDS, SlotPlaces, kept, post_bell,
};
use hostcall_abi::raw::{
    ForeignRawParams, LEAST_RAW_PAGE_BYTES, Place, RAW_GIVEN_WORD, RAW_HEADER_WORDS, RawLayout, RawParams,
    RawRingWords, header,
};
use hostcall_abi::service;
use hostcall_abi::waits::{self, WaitParams};
use hostcall_abi::word::{LAP, MAX_PAIRS, check_of};
use std::mem::offset_of;
use std::process::Command;

/// Makes the header's constants.
fn constants() -> String {
    let (bytes, flags) = (|value: u64| format!("{value}u"), |value: u64| format!("UINT64_C({value:#x})"));
    let constants = [
        ("START_WORDS", bytes(RawLayout::new(16, 128).unwrap().free_at(0).into())),
        ("GIVEN_WORD", bytes(RAW_GIVEN_WORD.into())),
        ("HEADER_WORDS", bytes(RAW_HEADER_WORDS.into())),
        ("HEADER_OPENED", bytes(header::OPENED.into())),
        ("HEADER_SLOT", bytes(header::SLOT.into())),
        ("HEADER_WAVE", bytes(header::WAVE.into())),
        ("HEADER_OPENED_NS", bytes(header::OPENED_NS.into())),
        ("HEADER_DROPPED", bytes(header::DROPPED.into())),
        ("RING_HEAD_BYTE", bytes(offset_of!(RawRingWords, head) as u64)),
        ("RING_KNOWN_BYTE", bytes(offset_of!(RawRingWords, known) as u64)),
        ("CLOSED", flags(Place(0).closed().0)),
        ("TICKET_SHIFT", Place::begin(0).0.trailing_zeros().to_string()),
        ("MOST_RECORD_BYTES", bytes(LEAST_RAW_PAGE_BYTES.into())),
    ];
    constants
        .into_iter()
        .fold(String::new(), |all, (name, value)| all + &format!("#define HOSTCALL_RAW_{name} {value}\n"))
}

/// Makes the constants of calls.
fn constants_of_calls() -> String {
    let flags = |value: u64| format!("UINT64_C({value:#x})");
    let number = |value: usize| format!("{value}u");
    let mut all = String::new();
    let mut define = |name: &str, value: String| all += &format!("#define HOSTCALL_{name} {value}\n");
    define("CONTEXT_MAGIC", format!("UINT32_C({:#x})", context::MAGIC));
    define("CONTEXT_MAJOR", number(context::MAJOR.into()));
    define("CONTEXT_REGION_BYTE", number(offset_of!(ContextParams, region)));
    define("CONTEXT_HOMES_BYTE", number(offset_of!(ContextParams, homes)));
    define("CONTEXT_SIZES_BYTE", number(offset_of!(ContextParams, home_slots)));
    define("CONTEXT_LAUNCH_BYTE", number(offset_of!(ContextParams, launch)));
    define("CONTEXT_FLAGS_BYTE", number(offset_of!(ContextParams, flags)));
    define("CONTEXT_MESSAGES", number(context::MESSAGES as usize));
    define("CONTEXT_WAKE_BYTE", number(offset_of!(ContextParams, wake)));
    define("HOME_BYTES", number(HOME_SLOT_BYTES));
    define("HOME_PLACES_BYTE", number(offset_of!(HomeSlotWords, places)));
    define("HOME_FIRST_BYTE", number(offset_of!(HomeSlotWords, first)));
    define("HOME_REQUEST_LAPS_BYTE", number(offset_of!(HomeSlotWords, request_laps)));
    define("HOME_REPLY_LAPS_BYTE", number(offset_of!(HomeSlotWords, reply_laps)));
    define("KEPT_HELD", flags(kept::HELD));
    define("KEPT_APART", flags(kept::APART));
    for (name, bit) in [
        ("REPLY_LAPS", kept::REPLY_LAPS),
        ("REQUEST_LAPS", kept::REQUEST_LAPS),
        ("PARITY", kept::PARITY),
        ("LAP", kept::LAP),
        ("QUARTERS", kept::QUARTERS),
        ("REPLY_ALONE", kept::REPLY_ALONE),
        ("REQUEST_ALONE", kept::REQUEST_ALONE),
    ] {
        define(&format!("KEPT_{name}"), number(bit as usize));
    }
    let [print, numbered] = Foreign::METHODS;
    define("METHOD_CHECK", number(service::number::CHECK.into()));
    for (name, method) in [("PRINT", print), ("NUMBERED_CHECK_FAILED", numbered)] {
        let bits = u64::from(method.number()) | u64::from(check_of(method.schema())) << 16;
        define(&format!("METHOD_{name}"), flags(bits));
    }
    define("LAP", flags(LAP));
    define("LAP_WORDS", number(LAP_WORDS));
    define("MOST_PAIRS", number(MAX_PAIRS));
    define("STOP_WORD", number(layout::header::STOP));
    define("ASLEEP_WORD", number(layout::header::ASLEEP));
    define("HINTS_WORD", number(layout::header::FIRST_CALLS));
    define("HINTS", number(FIRST_CALL_WORDS));
    define("POST_PERIOD_LOG2", number(post_bell::PERIOD_NS.trailing_zeros() as usize));
    macro_rules! places {
        ($($name:literal $field:ident)*) => {
            $(define(concat!($name, "_"), number(offset_of!(SlotPlaces, $field) / 4));)*
        };
    }
    places! {
        "DOORBELL" doorbell "REQUEST" request "REPLY" reply "PLANE" plane "AREA" area "AREA_BYTES" area_bytes "RING" ring
        "RING_ENTRIES" ring_entries "POST_BELL" post_bell "RING_TAIL" ring_tail "OWNER" owner
    }
    all
}

/// Makes the constants of trace points.
fn constants_of_points() -> String {
    let number = |value: usize| format!("{value}u");
    let flags = |value: u64| format!("UINT64_C({value:#x})");
    let [now, clock_pair, register] = TracePoints::METHODS
        .map(|method| flags(u64::from(method.number()) | u64::from(check_of(method.schema())) << 16));
    assert_eq!(offset_of!(PointsParams, raw), 0, "the header reads a stream there");
    let constants = [
        ("CONTEXT_POINTS_BYTE", number(offset_of!(ContextParams, points))),
        ("POINTS_VERSION", number(context::POINTS_VERSION as usize)),
        ("POINTS_SHIFT", number(context::POINTS_SHIFT as usize)),
        ("POINTS_STATES_BYTE", number(offset_of!(PointsParams, states))),
        ("POINTS_PLACES_BYTE", number(offset_of!(PointsParams, places))),
        ("POINTS_SWITCH_BYTE", number(offset_of!(PointsParams, switch))),
        ("POINT_UNWANTED", number(hostcall_abi::trace::UNWANTED as usize)),
        ("POINTS_SAMPLED_BYTE", number(offset_of!(PointsParams, sampled))),
        ("POINTS_HERE_BYTE", number(offset_of!(PointsParams, here))),
        ("PLACE_OPENING", flags(context::PLACE_OPENING)),
        ("PLACE_BY_RECORDS", flags(hostcall_abi::raw::Place::BY_RECORDS)),
        ("MOST_RECORD_BYTES", number(hostcall_abi::trace::MOST_RECORD_BYTES as usize)),
        ("IS_ZERO_SHIFT", number(hostcall_abi::trace::IS_ZERO_SHIFT as usize)),
        ("SAMPLE_LOG2", number(context::SAMPLE_LOG2 as usize)),
        ("METHOD_TRACE_NOW", now),
        ("METHOD_CLOCK_PAIR", clock_pair),
        ("METHOD_REGISTER_POINT", register),
        ("METHOD_TEXT", number(service::number::TEXT.into())),
    ];
    constants
        .into_iter()
        .fold(String::new(), |all, (name, value)| all + &format!("#define HOSTCALL_{name} {value}\n"))
}

/// Makes the constants of waits.
fn constants_of_waits() -> String {
    let number = |value: usize| format!("{value}u");
    let constants = [
        ("CONTEXT_WAITS_BYTE", number(offset_of!(ContextParams, waits))),
        ("WAITS_VERSION", number(waits::WAITS_VERSION as usize)),
        ("WAITS_SHIFT", number(context::WAITS_SHIFT as usize)),
        ("WAITS_TABLE_BYTE", number(offset_of!(WaitParams, table))),
        ("WAITS_ENTRIES_BYTE", number(offset_of!(WaitParams, entries))),
        ("WAITS_UNTOLD_BYTE", number(offset_of!(WaitParams, untold))),
        ("WAITS_HERE_BYTE", number(offset_of!(WaitParams, here))),
        ("WAITS_HOLDERS_BYTE", number(waits::WAIT_PARAMS_BYTES)),
        ("WAITS_HEADER_BYTES", number(8 * waits::HEADER_WORDS)),
        ("WAITS_UNTOLD_WORD", number(waits::UNTOLD_WORD)),
        ("WAITS_USED_WORD", number(waits::USED_WORD)),
        ("WAIT_ENTRY_BYTES", number(8 * waits::ENTRY_WORDS)),
        ("WAIT_PLACE_WORD", number(waits::at::PLACE)),
        ("WAIT_SINCE_WORD", number(waits::at::SINCE_NS)),
        ("WAIT_SEEN_WORD", number(waits::at::SEEN_NS)),
        ("WAIT_ADDRESS_WORD", number(waits::at::ADDRESS)),
        ("WAIT_SEQUENCE_WORD", number(waits::at::SEQUENCE)),
        ("WAIT_NAME_WORD", number(waits::at::NAME)),
        ("WAIT_TRIES", number(waits::TRIES as usize)),
        ("WAIT_TRY_STRIDE", number(waits::TRY_STRIDE as usize)),
        ("WAIT_LAP_BITS", number(waits::LAP_BITS as usize)),
        ("WAIT_AFTER_LOG2", number(waits::TELL_AFTER_LOG2 as usize)),
        ("WAIT_EVERY_LOG2", number(waits::TELL_EVERY_LOG2 as usize)),
    ];
    constants
        .into_iter()
        .fold(String::new(), |all, (name, value)| all + &format!("#define HOSTCALL_{name} {value}\n"))
}

#[test]
fn header_and_sources_do_not_differ() {
    let file = source("include/hostcall_device.h");
    let header = std::fs::read_to_string(&file).unwrap();
    let parts = [
        ("count from `shared`. */\n", constants(), "\n/* A lane looks"),
        ("slot's words or the context. */\n", constants_of_calls(), "\n/* Of a scope. */"),
        ("table that it leads to. */\n", constants_of_waits(), "\n/* Of a wait. */"),
        ("points that it leads to. */\n", constants_of_points(), "\n/* Room in a page"),
    ];
    let made = parts.into_iter().fold(header.clone(), |header, (from, constants, to)| {
        let (before, rest) = header.split_once(from).unwrap();
        let (_, after) = rest.split_once(to).unwrap();
        format!("{before}{from}{constants}{to}{after}")
    });
    if std::env::var_os("HOSTCALL_WRITE_HEADER").is_some() {
        std::fs::write(&file, &made).unwrap();
    } else {
        let how = "HOSTCALL_WRITE_HEADER=1 cargo test -p hostcall-c --test device";
        assert!(header == made, "write the header: {how}");
    }
}

#[test]
fn the_struct_is_that_of_the_rust_side() {
    let mut code = String::from("#include \"hostcall_device.h\"\n#include <stddef.h>\n");
    let mut is = |what: &str, value: usize| {
        code.push_str(&format!("_Static_assert({what} == {value}, \"{what}\");\n"));
    };
    is("sizeof(struct hostcall_raw_stream)", size_of::<ForeignRawParams>());
    macro_rules! fields {
        ($($field:ident: $of:ident $more:literal;)*) => {$(
            is(
                concat!("offsetof(struct hostcall_raw_stream, ", stringify!($field), ")"),
                offset_of!(ForeignRawParams, $of) + $more,
            );
        )*};
    }
    fields! {
        shared: shared 0; data: data 0; ring: ring 0; dropped: dropped 0; stop_at: stop_at 0; sequence: sequence 0;
        pages_log2: layout 0; page_bytes_log2: layout 4; launch: launch 0; slot: slot 0; waits: waits 0;
        reserved: reserved 0;
    }
    let file = temporary("layouts.c");
    std::fs::write(&file, code).unwrap();
    run(Command::new("cc").args(["-std=c11", "-fsyntax-only", "-I"]).arg(source("include")).arg(&file));
}

#[test]
fn words_of_the_parameters_are_their_bytes() {
    let memory = Memory::new(RawLayout::new(64, 4096).unwrap());
    let params = memory.stream(true);
    // SAFETY: the struct is `repr(C)` without padding, and as long.
    let words: [u64; 9] = unsafe { std::mem::transmute(params) };
    assert_eq!(params.to_words(), words);
}

#[test]
fn places_are_those_of_the_rust_side() {
    for (pages, page_bytes) in [(16, 128), (64, 4096), (65_536, 256)] {
        let layout = RawLayout::new(pages, page_bytes).unwrap();
        let params = RawParams { layout, shared: 1 << 40, data: 1 << 41, ..RawParams::default() };
        let stream = params.foreign(7, false);
        assert_eq!(stream.data, params.data);
        for (position, page) in [(0, 0), (77, 15), (1 << 40 | 9, 3)] {
            let mut found = [0; 3];
            // SAFETY: the function has this type, and writes three words.
            unsafe { (WAVES.places)(&stream, position, page, found.as_mut_ptr()) };
            let words = [layout.free_at(position), layout.commit_at(page), layout.header_at(page)];
            assert_eq!(found, words.map(|word| 8 * u64::from(word)));
        }
    }
}

#[test]
fn the_header_is_pedantic_c99_and_cxx11_for_all_targets() {
    let include = temporary("include.c");
    std::fs::write(
        &include,
        "#include \"hostcall_device.h\"\n#include \"hostcall.h\"\n\
         int main(void) { return sizeof(struct hostcall_raw_stream) != 72; }\n",
    )
    .unwrap();
    let program = temporary("include");
    for (compiler, language) in [("cc", ["-std=c99", "-xc"]), ("g++", ["-std=c++11", "-xc++"])] {
        let mut command = Command::new(compiler);
        command.args(language).args(FLAGS).arg("-I").arg(source("include")).arg(&include);
        run(command.arg("-o").arg(&program));
        assert!(output(&mut Command::new(&program)).status.success());
    }
}
