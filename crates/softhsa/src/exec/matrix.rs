//! Matrix products of a whole wave.

/// Returns the semantic function of the mnemonic.
pub fn handler(_: &str) -> Option<super::Handler> {
    None
}
