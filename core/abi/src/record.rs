//! What types consist of that host and device share: the fields of records, for readers that do not have the
//! type.

/// A number of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Number {
    /// `u8`.
    U8 = 1,
    /// `u16`.
    U16 = 2,
    /// `u32`.
    U32 = 3,
    /// `u64`, `usize`.
    U64 = 4,
    /// `i8`.
    I8 = 5,
    /// `i16`.
    I16 = 6,
    /// `i32`.
    I32 = 7,
    /// `i64`, `isize`.
    I64 = 8,
    /// `f32`.
    F32 = 9,
    /// `f64`.
    F64 = 10,
    /// `f16` of the crate `half`.
    F16 = 11,
    /// `bf16` of the crate `half`.
    BF16 = 12,
}

impl Number {
    const ALL: [Self; 12] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::F16,
        Self::BF16,
    ];

    /// The number with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|number| number.code() == code)
    }

    /// The code by which files name it.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Its name in Rust, with a fixed size.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        }
    }

    /// Its bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// What a type consists of. Numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number.
    Number(Number),
    /// Values of one type, one after the other.
    Array {
        /// Their type.
        of: &'static Type,
        /// Bytes of each.
        stride_bytes: u32,
        /// How many.
        count: u32,
    },
    /// Fields.
    Struct {
        /// The type's name.
        name: &'static str,
        /// A format string with the names of fields that are numbers, or nothing.
        format: &'static str,
        /// The fields, in order.
        fields: &'static [Field],
    },
    /// Nothing is known of it.
    Unknown,
}

impl Type {
    /// Whether it is one number.
    pub const fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }
}

/// A field of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name: digits in a tuple struct.
    pub name: &'static str,
    /// The unit of its numbers, or nothing.
    pub unit: &'static str,
    /// Where in the struct it begins.
    pub offset_bytes: u32,
    /// Its type.
    pub ty: &'static Type,
}
