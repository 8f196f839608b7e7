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

/// Adds other hashes to a hash.
pub const fn add_hashes(mut hash: u64, others: &[u64]) -> u64 {
    let mut i = 0;
    while i < others.len() {
        hash = add_hash(hash, others[i]);
        i += 1;
    }
    hash
}

/// The schema of a function, or of the same one that is unsafe to call.
pub const fn with_safety(of_safe: u64, is_unsafe: bool) -> u64 {
    if is_unsafe { add(of_safe, b"unsafe") } else { of_safe }
}

/// The schema of a method with this full name, as `Inventory::find`, of its parameters' types and its result's. One that is unsafe
/// to call has another one than a safe method of the same name and types, so that nobody calls it by describing it as safe.
pub const fn of_method(name: &str, parameters: &[u64], result: u64, is_unsafe: bool) -> u64 {
    with_safety(add_hash(add_hashes(of(name), parameters), result), is_unsafe)
}

/// The schema of a struct with fields of these schemas: no other type's, whatever the struct's name is.
pub const fn of_struct(name: &str, fields: &[u64]) -> u64 {
    add_hashes(add_hash(of("struct"), of(name)), fields)
}

/// The schema of an enum with these variants and their fields' schemas.
pub const fn of_enum(name: &str, variants: &[(&str, &[u64])]) -> u64 {
    let mut hash = of(name);
    let mut i = 0;
    while i < variants.len() {
        let (name, fields) = variants[i];
        hash = add_hashes(add(hash, name.as_bytes()), fields);
        i += 1;
    }
    hash
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
