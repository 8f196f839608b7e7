//! Schema hashes: 64-bit FNV-1a over a canonical text of names and types, in `const` code, so that both
//! sides compute the same number from the same source and a change of types changes it.

/// FNV-1a's 64-bit offset basis: the hash of nothing.
pub const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Adds bytes to a hash.
pub const fn add(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(PRIME);
        i += 1;
    }
    hash
}

/// Adds another hash, such as a type's, to a hash.
pub const fn add_hash(hash: u64, other: u64) -> u64 {
    add(hash, &other.to_le_bytes())
}

/// The hash of a text.
pub const fn of(text: &str) -> u64 {
    add(EMPTY, text.as_bytes())
}

#[cfg(test)]
mod tests {
    #[test]
    fn fnv_1a_reference_values() {
        // From the reference vectors of the FNV authors.
        assert_eq!(super::of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(super::of("foobar"), 0x8594_4171_f739_67e8);
    }
}
