//! Code objects of the software HSA runtime: any bytes are refused or loaded and relocated.
#![no_main]

use hostcall_softhsa::load::CodeObject;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    if let Ok(mut object) = CodeObject::read(file) {
        // An unknown relocation is refused, which is as good as any other end.
        let _ = object.relocate(0x7000_0000_0000);
    }
});
