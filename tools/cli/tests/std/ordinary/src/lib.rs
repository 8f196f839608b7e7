//! What the program shares with programs in C.

/// Adds 1.
#[unsafe(no_mangle)]
pub extern "C" fn ordinary_next(number: u8) -> u8 {
    number + 1
}
