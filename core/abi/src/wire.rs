//! Types that travel as words.

use crate::schema;

/// A value of a fixed number of 64-bit words. Implemented for the numbers, `bool`, `char`, `()`, tuples,
/// arrays, `Option` and `Result` of such; structs and enums of such derive it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not travel in a call",
    label = "no parameter or result of a service or a closure",
    note = "take `&str` for a `String` and `&[u8]` for a `Vec<u8>` in a service; bytes come back through a last \
            parameter `&mut [u8]`",
    note = "structs and enums of numbers and the like travel if they have `#[derive(Wire)]`"
)]
pub trait Wire: Sized {
    /// Words of every value.
    const WORDS: usize;
    /// Hash of the type's name and structure.
    const SCHEMA: u64;
    /// Writes the value's words; `words` has [`Wire::WORDS`] elements.
    fn to_words(&self, words: &mut [u64]);
    /// Reads a value, or `None` when the words are no value of this type. `words` has at least
    /// [`Wire::WORDS`] elements.
    fn from_words(words: &[u64]) -> Option<Self>;
}

macro_rules! wire_integer {
    ($($t:ty, $name:literal;)*) => {$(
        impl Wire for $t {
            const WORDS: usize = 1;
            const SCHEMA: u64 = schema::of($name);
            #[inline(always)]
            fn to_words(&self, words: &mut [u64]) {
                words[0] = *self as u64;
            }
            #[inline(always)]
            fn from_words(words: &[u64]) -> Option<Self> {
                let value = words[0] as $t;
                (value as u64 == words[0]).then_some(value)
            }
        }
    )*};
}

wire_integer! {
    u8, "u8"; u16, "u16"; u32, "u32"; u64, "u64"; usize, "usize";
    i8, "i8"; i16, "i16"; i32, "i32"; i64, "i64"; isize, "isize";
}

impl Wire for f32 {
    const WORDS: usize = 1;
    const SCHEMA: u64 = schema::of("f32");
    #[inline(always)]
    fn to_words(&self, words: &mut [u64]) {
        words[0] = u64::from(self.to_bits());
    }
    #[inline(always)]
    fn from_words(words: &[u64]) -> Option<Self> {
        u32::from_words(words).map(f32::from_bits)
    }
}

impl Wire for f64 {
    const WORDS: usize = 1;
    const SCHEMA: u64 = schema::of("f64");
    #[inline(always)]
    fn to_words(&self, words: &mut [u64]) {
        words[0] = self.to_bits();
    }
    #[inline(always)]
    fn from_words(words: &[u64]) -> Option<Self> {
        Some(f64::from_bits(words[0]))
    }
}

impl Wire for bool {
    const WORDS: usize = 1;
    const SCHEMA: u64 = schema::of("bool");
    #[inline(always)]
    fn to_words(&self, words: &mut [u64]) {
        words[0] = u64::from(*self);
    }
    #[inline(always)]
    fn from_words(words: &[u64]) -> Option<Self> {
        match words[0] {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Wire for char {
    const WORDS: usize = 1;
    const SCHEMA: u64 = schema::of("char");
    #[inline(always)]
    fn to_words(&self, words: &mut [u64]) {
        words[0] = *self as u64;
    }
    #[inline(always)]
    fn from_words(words: &[u64]) -> Option<Self> {
        u32::from_words(words).and_then(char::from_u32)
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    const WORDS: usize = T::WORDS * N;
    const SCHEMA: u64 = schema::add_hash(schema::add_hash(schema::of("array"), T::SCHEMA), N as u64);
    fn to_words(&self, words: &mut [u64]) {
        let mut at = 0;
        for item in self {
            item.to_words(&mut words[at..at + T::WORDS]);
            at += T::WORDS;
        }
    }
    fn from_words(words: &[u64]) -> Option<Self> {
        let mut bad = false;
        let items = core::array::from_fn(|i| {
            let item = T::from_words(&words[i * T::WORDS..]);
            bad |= item.is_none();
            item
        });
        if bad { None } else { Some(items.map(|item| item.expect("checked above"))) }
    }
}

impl<T: Wire> Wire for Option<T> {
    const WORDS: usize = 1 + T::WORDS;
    const SCHEMA: u64 = schema::add_hash(schema::of("option"), T::SCHEMA);
    fn to_words(&self, words: &mut [u64]) {
        words[..Self::WORDS].fill(0);
        if let Some(value) = self {
            words[0] = 1;
            value.to_words(&mut words[1..Self::WORDS]);
        }
    }
    fn from_words(words: &[u64]) -> Option<Self> {
        match words[0] {
            0 => Some(None),
            1 => T::from_words(&words[1..]).map(Some),
            _ => None,
        }
    }
}

const fn larger(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    const WORDS: usize = 1 + larger(T::WORDS, E::WORDS);
    const SCHEMA: u64 = schema::add_hash(schema::add_hash(schema::of("result"), T::SCHEMA), E::SCHEMA);
    fn to_words(&self, words: &mut [u64]) {
        words[..Self::WORDS].fill(0);
        match self {
            Ok(value) => value.to_words(&mut words[1..1 + T::WORDS]),
            Err(error) => {
                words[0] = 1;
                error.to_words(&mut words[1..1 + E::WORDS]);
            }
        }
    }
    fn from_words(words: &[u64]) -> Option<Self> {
        match words[0] {
            0 => T::from_words(&words[1..]).map(Ok),
            1 => E::from_words(&words[1..]).map(Err),
            _ => None,
        }
    }
}

macro_rules! wire_tuple {
    ($($t:ident $i:tt),*) => {
        impl<$($t: Wire),*> Wire for ($($t,)*) {
            const WORDS: usize = 0 $(+ $t::WORDS)*;
            const SCHEMA: u64 = {
                let hash = schema::of("tuple");
                $(let hash = schema::add_hash(hash, $t::SCHEMA);)*
                hash
            };
            #[inline(always)]
            #[allow(unused_variables, unused_mut, unused_assignments, reason = "the empty tuple uses none of them")]
            fn to_words(&self, words: &mut [u64]) {
                let mut at = 0;
                $(self.$i.to_words(&mut words[at..at + $t::WORDS]); at += $t::WORDS;)*
            }
            #[inline(always)]
            #[allow(unused_variables, unused_mut, unused_assignments, clippy::unused_unit, reason = "the empty tuple uses none of them")]
            fn from_words(words: &[u64]) -> Option<Self> {
                let mut at = 0;
                Some(($({ let item = $t::from_words(&words[at..])?; at += $t::WORDS; item },)*))
            }
        }
    };
}

wire_tuple!();
wire_tuple!(A 0);
wire_tuple!(A 0, B 1);
wire_tuple!(A 0, B 1, C 2);
wire_tuple!(A 0, B 1, C 2, D 3);
wire_tuple!(A 0, B 1, C 2, D 3, E 4);
wire_tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
wire_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
wire_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
wire_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
wire_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
wire_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
wire_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Debug;

    fn round_trip<T: Wire + PartialEq + Debug>(value: T) {
        let mut words = [u64::MAX; 40];
        value.to_words(&mut words[..T::WORDS]);
        assert_eq!(T::from_words(&words), Some(value));
    }

    #[test]
    fn values_survive() {
        round_trip(());
        round_trip((1u8, -2i8, 3u16, -4i16, 5u32, -6i32, (u64::MAX, i64::MIN)));
        round_trip((1.5f32, f64::MIN, true, '\u{10ffff}', usize::MAX, isize::MIN));
        round_trip([[1u16, 2], [3, 4]]);
        round_trip((Some(7u32), None::<u8>, Ok::<u8, (u8, u8)>(3), Err::<u8, (u8, u8)>((1, 2))));
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(u8::from_words(&[256]), None);
        assert_eq!(bool::from_words(&[2]), None);
        assert_eq!(char::from_words(&[0xd800]), None);
        assert_eq!(Option::<u8>::from_words(&[2, 0]), None);
        assert_eq!(<Result<u8, u8>>::from_words(&[0, 300]), None);
        assert_eq!(<[u8; 2]>::from_words(&[1, 300]), None);
    }

    #[test]
    fn types_of_the_same_size_differ() {
        assert_ne!(u32::SCHEMA, i32::SCHEMA);
        assert_ne!(<(u8, u16)>::SCHEMA, <(u16, u8)>::SCHEMA);
        assert_ne!(<[u8; 2]>::SCHEMA, <(u8, u8)>::SCHEMA);
    }
}
