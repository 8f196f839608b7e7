//! Values of Python as the words and bytes of calls, as `hostcall_abi::wire` has those of Rust.

use hostcall::Wire;
use hostcall_abi::schema;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyString, PyTuple};

/// The type of a parameter or of a part of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer of so many bits.
    Unsigned(u32),
    /// A signed integer of so many bits: its word has the sign in all bits above.
    Signed(u32),
    F32,
    F64,
    Bool,
    /// A word with the length, and so many of the call's bytes. Of a result: bytes alone.
    Bytes,
    /// The same, in UTF-8.
    Text,
}

impl Kind {
    pub fn of(name: &str) -> PyResult<Self> {
        Ok(match name {
            "u8" => Self::Unsigned(8),
            "u16" => Self::Unsigned(16),
            "u32" => Self::Unsigned(32),
            "u64" => Self::Unsigned(64),
            "i8" => Self::Signed(8),
            "i16" => Self::Signed(16),
            "i32" => Self::Signed(32),
            "i64" => Self::Signed(64),
            "f32" => Self::F32,
            "f64" => Self::F64,
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "str" => Self::Text,
            _ => return Err(PyTypeError::new_err(format!("no word of a call is a `{name}`"))),
        })
    }

    pub fn name(self) -> String {
        match self {
            Self::Unsigned(bits) => format!("u{bits}"),
            Self::Signed(bits) => format!("i{bits}"),
            Self::F32 => "f32".into(),
            Self::F64 => "f64".into(),
            Self::Bool => "bool".into(),
            Self::Bytes => "bytes".into(),
            Self::Text => "str".into(),
        }
    }

    fn has_bytes(self) -> bool {
        matches!(self, Self::Bytes | Self::Text)
    }

    /// Returns the schema of the Rust type, of a parameter.
    fn schema(self) -> u64 {
        match self {
            Self::Unsigned(8) => u8::SCHEMA,
            Self::Unsigned(16) => u16::SCHEMA,
            Self::Unsigned(32) => u32::SCHEMA,
            Self::Unsigned(_) => u64::SCHEMA,
            Self::Signed(8) => i8::SCHEMA,
            Self::Signed(16) => i16::SCHEMA,
            Self::Signed(32) => i32::SCHEMA,
            Self::Signed(_) => i64::SCHEMA,
            Self::F32 => f32::SCHEMA,
            Self::F64 => f64::SCHEMA,
            Self::Bool => bool::SCHEMA,
            Self::Bytes => schema::of("&[u8]"),
            Self::Text => schema::of("&str"),
        }
    }

    /// Returns the value of a word, and of the bytes at the front of `bytes`, which it takes. `None` if it is none.
    fn decode<'py>(self, py: Python<'py>, word: u64, bytes: &mut &[u8]) -> Option<Bound<'py, PyAny>> {
        Some(match self {
            Self::Unsigned(bits) if bits < 64 && word >> bits != 0 => return None,
            Self::Unsigned(_) => word.into_pyobject(py).ok()?.into_any(),
            Self::Signed(bits) => {
                let unused = 64 - bits;
                let value = ((word << unused) as i64) >> unused;
                if value as u64 != word {
                    return None;
                }
                value.into_pyobject(py).ok()?.into_any()
            }
            Self::F32 => PyFloat::new(py, f32::from_bits(u32::try_from(word).ok()?).into()).into_any(),
            Self::F64 => PyFloat::new(py, f64::from_bits(word)).into_any(),
            Self::Bool if word > 1 => return None,
            Self::Bool => PyBool::new(py, word == 1).to_owned().into_any(),
            Self::Bytes | Self::Text => {
                let (value, rest) = bytes.split_at_checked(usize::try_from(word).ok()?)?;
                *bytes = rest;
                match self {
                    Self::Text => PyString::new(py, std::str::from_utf8(value).ok()?).into_any(),
                    _ => PyBytes::new(py, value).into_any(),
                }
            }
        })
    }

    /// Appends a value to the words or bytes of a result.
    fn encode(self, value: &Bound<'_, PyAny>, words: &mut Vec<u64>, bytes: &mut Vec<u8>) -> PyResult<()> {
        let refused = |_| PyOverflowError::new_err(format!("{value} is no `{}`", self.name()));
        match self {
            Self::Unsigned(64) => words.push(value.extract::<u64>().map_err(refused)?),
            Self::Unsigned(bits) => {
                let number = value.extract::<u64>().map_err(refused)?;
                if number >> bits != 0 {
                    return Err(PyOverflowError::new_err(format!("{number} is no `{}`", self.name())));
                }
                words.push(number);
            }
            Self::Signed(bits) => {
                let number = value.extract::<i64>().map_err(refused)?;
                let unused = 64 - bits;
                if (number << unused) >> unused != number {
                    return Err(PyOverflowError::new_err(format!("{number} is no `{}`", self.name())));
                }
                words.push(number as u64);
            }
            Self::F32 => words.push((value.extract::<f64>()? as f32).to_bits().into()),
            Self::F64 => words.push(value.extract::<f64>()?.to_bits()),
            Self::Bool => words.push(value.extract::<bool>()?.into()),
            Self::Bytes => bytes.extend_from_slice(value.extract::<&[u8]>()?),
            Self::Text => bytes.extend_from_slice(value.extract::<&str>()?.as_bytes()),
        }
        Ok(())
    }
}

/// Returns a value for people, or its type where it is long.
fn describe(value: &Bound<'_, PyAny>) -> String {
    let kind = || value.get_type().name().map_or_else(|_| "a value".into(), |name| format!("a `{name}`"));
    let text = value.repr().ok().map(|text| text.to_string());
    text.filter(|text| text.chars().count() <= 100).unwrap_or_else(kind)
}

/// The types of a method.
pub struct Signature {
    pub arguments: Vec<Kind>,
    pub results: Vec<Kind>,
}

impl Signature {
    pub fn of(arguments: &[String], results: &[String]) -> PyResult<Self> {
        let kinds = |names: &[String]| names.iter().map(|name| Kind::of(name)).collect::<PyResult<Vec<_>>>();
        let signature = Self { arguments: kinds(arguments)?, results: kinds(results)? };
        if signature.results.iter().filter(|kind| kind.has_bytes()).count() > 1 {
            return Err(PyValueError::new_err("a result has bytes or text once: join them"));
        }
        if signature.arguments.len() > 64 || signature.result_words() > 64 {
            return Err(PyValueError::new_err("a call has up to 64 words there and back"));
        }
        Ok(signature)
    }

    /// Returns how many words a result has.
    pub fn result_words(&self) -> usize {
        self.results.iter().filter(|kind| !kind.has_bytes()).count()
    }

    /// Returns the schema hash that a Rust trait's method of this name and types has.
    pub fn schema(&self, name: &str) -> u64 {
        let mut parameters: Vec<_> = self.arguments.iter().map(|kind| kind.schema()).collect();
        if self.results.iter().any(|kind| kind.has_bytes()) {
            parameters.push(schema::of("&mut [u8]"));
        }
        let words: Vec<_> = self.results.iter().filter(|kind| !kind.has_bytes()).collect();
        let result = match words[..] {
            [] => <()>::SCHEMA,
            [word] => word.schema(),
            _ => words.iter().fold(schema::of("tuple"), |hash, word| schema::add_hash(hash, word.schema())),
        };
        schema::of_method(name, &parameters, result, false)
    }

    /// Returns the arguments of a call. `None` if its words are none.
    pub fn decode<'py>(
        &self,
        py: Python<'py>,
        words: &[u64],
        mut bytes: &[u8],
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if words.len() != self.arguments.len() {
            return Ok(None);
        }
        let values: Option<Vec<_>> =
            self.arguments.iter().zip(words).map(|(kind, word)| kind.decode(py, *word, &mut bytes)).collect();
        values.filter(|_| bytes.is_empty()).map(|values| PyTuple::new(py, values)).transpose()
    }

    /// Puts what a function returned into words and bytes.
    pub fn encode(
        &self,
        value: &Bound<'_, PyAny>,
        words: &mut Vec<u64>,
        bytes: &mut Vec<u8>,
    ) -> PyResult<()> {
        match self.results[..] {
            [] if value.is_none() => Ok(()),
            [] => {
                let (what, name) = (describe(value), "`-> hostcall.f32`");
                Err(PyTypeError::new_err(format!(
                    "it returned {what}, and its annotation says no result: write {name}, say, or return None"
                )))
            }
            [kind] => kind.encode(value, words, bytes),
            ref kinds => {
                let parts = value.cast::<PyTuple>().map_err(|_| {
                    PyTypeError::new_err(format!(
                        "the result is a tuple of {} values, not {value}",
                        kinds.len()
                    ))
                })?;
                if parts.len() != kinds.len() {
                    let what = format!("the result has {} values, not {}", kinds.len(), parts.len());
                    return Err(PyTypeError::new_err(what));
                }
                kinds.iter().zip(parts).try_for_each(|(kind, part)| kind.encode(&part, words, bytes))
            }
        }
    }

    /// Returns what a kernel should have sent, for people.
    pub fn expects(&self) -> String {
        let names: Vec<_> = self.arguments.iter().map(|kind| kind.name()).collect();
        format!("({})", names.join(", "))
    }
}
