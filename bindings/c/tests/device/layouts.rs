//! What the header says of layouts, and compilers of it.

use crate::common::{output, run, source};
use crate::waves::{Memory, WAVES};
use crate::{FLAGS, temporary};
use hostcall_abi::raw::{
    ForeignRawParams, LEAST_RAW_PAGE_BYTES, Place, RAW_GIVEN_WORD, RAW_HEADER_WORDS, RawLayout, RawParams,
    RawRingWords, header,
};
use std::mem::offset_of;
use std::process::Command;

#[test]
fn constants_and_structs_are_those_of_the_rust_side() {
    let mut code = String::from("#include \"hostcall_device.h\"\n#include <stddef.h>\n");
    let mut is = |what: &str, value: u64| {
        code.push_str(&format!("_Static_assert({what} == UINT64_C({value}), \"{what}\");\n"));
    };
    let least = RawLayout::new(16, 128).unwrap();
    is("HOSTCALL_RAW_START_WORDS", least.free_at(0).into());
    is("HOSTCALL_RAW_GIVEN_WORD", RAW_GIVEN_WORD.into());
    is("HOSTCALL_RAW_HEADER_WORDS", RAW_HEADER_WORDS.into());
    is("HOSTCALL_RAW_HEADER_OPENED", header::OPENED.into());
    is("HOSTCALL_RAW_HEADER_SLOT", header::SLOT.into());
    is("HOSTCALL_RAW_HEADER_WAVE", header::WAVE.into());
    is("HOSTCALL_RAW_HEADER_OPENED_NS", header::OPENED_NS.into());
    is("HOSTCALL_RAW_HEADER_DROPPED", header::DROPPED.into());
    is("HOSTCALL_RAW_RING_HEAD", offset_of!(RawRingWords, head) as u64);
    is("HOSTCALL_RAW_RING_KNOWN", offset_of!(RawRingWords, known) as u64);
    is("HOSTCALL_RAW_CLOSED", Place(0).closed().0);
    is("UINT64_C(1) << HOSTCALL_RAW_TICKET_SHIFT", Place::begin(0).0);
    is("HOSTCALL_RAW_MOST_RECORD_BYTES", LEAST_RAW_PAGE_BYTES.into());
    is("sizeof(struct hostcall_raw_stream)", size_of::<ForeignRawParams>() as u64);
    macro_rules! fields {
        ($($field:ident)*) => {$(
            is(
                concat!("offsetof(struct hostcall_raw_stream, ", stringify!($field), ")"),
                offset_of!(ForeignRawParams, $field) as u64,
            );
        )*};
    }
    fields!(shared data ring dropped stop_at sequence launch slot waits reserved);
    is("offsetof(struct hostcall_raw_stream, pages_log2)", offset_of!(ForeignRawParams, layout) as u64);
    is(
        "offsetof(struct hostcall_raw_stream, page_bytes_log2)",
        offset_of!(ForeignRawParams, layout) as u64 + 4,
    );
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
