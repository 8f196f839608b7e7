//! Types that travel, as a service's source names them: their words and their schema, as `hostcall_abi::wire` has them.

use hostcall_abi::schema;
use std::fmt;

/// A type of parameters and results.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Type {
    Unit,
    /// A number, `bool` or `char`, by its name in Rust.
    Scalar(&'static Scalar),
    Array(Box<Type>, usize),
    Option(Box<Type>),
    Result(Box<Type>, Box<Type>),
    Tuple(Vec<Type>),
    Struct(String, Vec<Field>),
    Enum(String, Vec<Variant>),
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub name: String,
    pub of: Type,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Variant {
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(PartialEq, Eq)]
pub(super) struct Scalar {
    pub rust: &'static str,
    pub c: &'static str,
    /// The word of a value `v`.
    pub put: &'static str,
    /// What a word `w` is besides that of the value which was made of it.
    pub check: &'static str,
}

const fn scalar(rust: &'static str, c: &'static str, put: &'static str) -> Scalar {
    Scalar { rust, c, put, check: "" }
}

pub(super) static SCALARS: [Scalar; 14] = [
    scalar("u8", "uint8_t", "v"),
    scalar("u16", "uint16_t", "v"),
    scalar("u32", "uint32_t", "v"),
    scalar("u64", "uint64_t", "v"),
    scalar("usize", "uint64_t", "v"),
    scalar("i8", "int8_t", "(uint64_t)(int64_t)v"),
    scalar("i16", "int16_t", "(uint64_t)(int64_t)v"),
    scalar("i32", "int32_t", "(uint64_t)(int64_t)v"),
    scalar("i64", "int64_t", "(uint64_t)v"),
    scalar("isize", "int64_t", "(uint64_t)v"),
    // Their bits are copied.
    scalar("f32", "float", ""),
    scalar("f64", "double", ""),
    Scalar { check: " && w <= 1", ..scalar("bool", "uint8_t", "v != 0") },
    Scalar { check: " && w <= 0x10ffff && (w < 0xd800 || w > 0xdfff)", ..scalar("char", "uint32_t", "v") },
];

/// As Rust names it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit => f.write_str("()"),
            Self::Scalar(scalar) => f.write_str(scalar.rust),
            Self::Array(of, count) => write!(f, "[{of}; {count}]"),
            Self::Option(of) => write!(f, "Option<{of}>"),
            Self::Result(value, error) => write!(f, "Result<{value}, {error}>"),
            Self::Tuple(parts) => {
                f.write_str("(")?;
                parts.iter().try_for_each(|part| write!(f, "{part},"))?;
                f.write_str(")")
            }
            Self::Struct(name, _) | Self::Enum(name, _) => f.write_str(name),
        }
    }
}

impl Type {
    pub fn words(&self) -> usize {
        let sum = |parts: &mut dyn Iterator<Item = usize>| parts.fold(0usize, usize::saturating_add);
        let of_fields = |fields: &[Field]| sum(&mut fields.iter().map(|field| field.of.words()));
        match self {
            Self::Unit => 0,
            Self::Scalar(_) => 1,
            Self::Array(of, count) => of.words().saturating_mul(*count),
            Self::Option(of) => of.words().saturating_add(1),
            Self::Result(value, error) => value.words().max(error.words()).saturating_add(1),
            Self::Tuple(parts) => sum(&mut parts.iter().map(Self::words)),
            Self::Struct(_, fields) => of_fields(fields),
            Self::Enum(_, variants) => {
                variants.iter().map(|variant| of_fields(&variant.fields)).max().unwrap_or(0).saturating_add(1)
            }
        }
    }

    pub fn schema(&self) -> u64 {
        let of_fields =
            |fields: &[Field]| -> Vec<u64> { fields.iter().map(|field| field.of.schema()).collect() };
        let of_parts = |name, parts: &[u64]| schema::add_hashes(schema::of(name), parts);
        match self {
            Self::Unit => schema::of("tuple"),
            Self::Scalar(scalar) => schema::of(scalar.rust),
            Self::Array(of, count) => of_parts("array", &[of.schema(), *count as u64]),
            Self::Option(of) => of_parts("option", &[of.schema()]),
            Self::Result(value, error) => of_parts("result", &[value.schema(), error.schema()]),
            Self::Tuple(parts) => of_parts("tuple", &parts.iter().map(Self::schema).collect::<Vec<_>>()),
            Self::Struct(name, fields) => schema::of_struct(name, &of_fields(fields)),
            Self::Enum(name, variants) => {
                let fields: Vec<_> = variants.iter().map(|variant| of_fields(&variant.fields)).collect();
                let variants: Vec<_> =
                    variants.iter().zip(&fields).map(|(variant, of)| (&*variant.name, &**of)).collect();
                schema::of_enum(name, &variants)
            }
        }
    }
}

/// A parameter.
pub(super) enum Kind {
    Value(Type),
    /// `&str` or `&[u8]`.
    Bytes {
        schema: u64,
    },
}

/// What is wrong, and in which line of what is read.
pub(super) struct Wrong {
    pub line: usize,
    pub message: String,
}

pub(super) struct Method {
    pub name: String,
    /// Where it is in the Rust that was read, from 1.
    pub line: usize,
    pub docs: Vec<String>,
    pub parameters: Vec<(String, Kind)>,
    /// The last parameter `&mut [u8]`.
    pub output: Option<String>,
    pub result: Type,
    pub is_unsafe: bool,
}

pub(super) struct Service {
    pub name: String,
    /// Where it is in the Rust that was read, from 1.
    pub line: usize,
    pub docs: Vec<String>,
    pub number: u16,
    pub methods: Vec<Method>,
}

impl Service {
    /// Its last method's number.
    pub fn last_number(&self) -> u16 {
        self.number + (self.methods.len() as u16).saturating_sub(1)
    }

    /// Something that another language cannot say of it.
    pub fn wrong(&self, message: String) -> Wrong {
        Wrong { line: self.line, message }
    }
}

impl Method {
    /// Something that another language cannot say of it.
    pub fn wrong(&self, message: String) -> Wrong {
        Wrong { line: self.line, message }
    }

    /// Words of its arguments: of bytes their number.
    pub fn argument_words(&self) -> usize {
        let words = self.parameters.iter().map(|(_, kind)| match kind {
            Kind::Value(of) => of.words(),
            Kind::Bytes { .. } => 1,
        });
        words.fold(0, usize::saturating_add)
    }

    pub fn bytes(&self) -> Vec<&str> {
        let bytes = self.parameters.iter().filter(|(_, kind)| matches!(kind, Kind::Bytes { .. }));
        bytes.map(|(name, _)| name.as_str()).collect()
    }

    pub fn schema(&self, service: &str) -> u64 {
        let mut parameters: Vec<u64> = self
            .parameters
            .iter()
            .map(|(_, kind)| match kind {
                Kind::Value(of) => of.schema(),
                Kind::Bytes { schema } => *schema,
            })
            .collect();
        parameters.extend(self.output.iter().map(|_| schema::of("&mut [u8]")));
        let name = format!("{service}::{}", self.name);
        schema::of_method(&name, &parameters, self.result.schema(), self.is_unsafe)
    }
}
