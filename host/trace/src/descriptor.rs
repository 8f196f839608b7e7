//! What the records of a stream consist of, as the file says it.

use crate::format::{Fields, MAX_NAME_BYTES};
use crate::record::Event;
use half::{bf16, f16};
use hostcall_abi::record::{Number, Type};
use hostcall_format::{Format, Value};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// Most columns of a record: one for each byte of the longest.
const MOST_COLUMNS: usize = 128;

/// Most bytes of a column's name, and of its unit. Longer ones are cut.
const MOST_COLUMN_BYTES: usize = 200;
const MOST_UNIT_BYTES: usize = 32;

/// Streams whose descriptors are kept.
const MOST_STREAMS: usize = 256;

/// A number of each record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// Its name: that of the field, with those of the fields that it is in and the places in arrays, joined
    /// by dots.
    pub name: Arc<str>,
    /// Its unit, or nothing.
    pub unit: Arc<str>,
    /// Where in the record it begins.
    pub offset_bytes: u32,
    /// Its type.
    pub number: Number,
}

/// What the records of a stream consist of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Descriptor {
    /// The type's name, or nothing.
    pub name: Arc<str>,
    /// A format string with names of columns, or nothing.
    pub format: Arc<str>,
    /// The numbers of a record, by their places in it.
    pub columns: Vec<Column>,
}

impl Descriptor {
    /// Describes records of a type; `None` when something in it is unknown, or it has no numbers.
    pub fn of(ty: &Type) -> Option<Self> {
        let (name, format) = match ty {
            Type::Struct { name, format, .. } => (*name, *format),
            _ => ("", ""),
        };
        let mut columns = Vec::new();
        add_columns(ty, "", "", 0, &mut columns)?;
        let descriptor = Self {
            name: cut(name, MAX_NAME_BYTES).into(),
            format: cut(format, MAX_NAME_BYTES).into(),
            columns,
        };
        (!descriptor.columns.is_empty()).then_some(descriptor)
    }

    /// Returns a record's number.
    ///
    /// # Panics
    /// When the record is shorter than those that are described.
    #[inline]
    pub fn value(column: &Column, record: &[u8]) -> RecordValue {
        let from = column.offset_bytes as usize;
        RecordValue::of(column.number, &record[from..from + column.number.bytes() as usize])
    }

    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        let mut text = |text: &str| {
            to.extend((text.len() as u16).to_le_bytes());
            to.extend(text.as_bytes());
        };
        text(&self.name);
        text(&self.format);
        to.extend((self.columns.len() as u16).to_le_bytes());
        for Column { name, unit, offset_bytes, number } in &self.columns {
            to.extend(offset_bytes.to_le_bytes());
            to.push(number.code());
            to.extend([name.len() as u8, unit.len() as u8]);
            to.extend(name.as_bytes());
            to.extend(unit.as_bytes());
        }
    }

    /// Takes what [`Descriptor::put`] put, of records of so many bytes; `None` when it makes no sense.
    pub(crate) fn take(fields: &mut Fields<'_>, record_bytes: u32) -> Option<Self> {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(Arc::<str>::from);
        let bytes = fields.u16()?;
        let name = text(fields.bytes(bytes.into())?)?;
        let bytes = fields.u16()?;
        // Writers cut longer ones. A few bytes of a format may fill a line of a quarter of a MiB.
        let format = text(fields.bytes(bytes.into())?).filter(|format| format.len() <= MAX_NAME_BYTES)?;
        let count = usize::from(fields.u16()?);
        let mut columns = Vec::new();
        let mut names = HashSet::new();
        for _ in 0..count {
            let offset_bytes = fields.u32()?;
            let number = Number::from_code(fields.u8()?)?;
            let (name_bytes, unit_bytes) = (fields.u8()?, fields.u8()?);
            let name = text(fields.bytes(name_bytes.into())?)?;
            let unit = text(fields.bytes(unit_bytes.into())?)?;
            let is_inside = offset_bytes.checked_add(number.bytes()).is_some_and(|end| end <= record_bytes);
            if !is_inside || !names.insert(name.clone()) {
                return None;
            }
            columns.push(Column { name, unit, offset_bytes, number });
        }
        (1..=MOST_COLUMNS).contains(&count).then_some(Self { name, format, columns })
    }
}

/// Adds the columns of a type that begins so far on in the record. Returns `None` when it has something
/// unknown or too much.
fn add_columns(ty: &Type, name: &str, unit: &str, offset_bytes: u32, to: &mut Vec<Column>) -> Option<()> {
    let inner = |part: &dyn fmt::Display| match name {
        "" => part.to_string(),
        name => format!("{name}.{part}"),
    };
    match ty {
        Type::Number(number) => {
            let name = cut(if name.is_empty() { "value" } else { name }, MOST_COLUMN_BYTES).into();
            let unit = cut(unit, MOST_UNIT_BYTES).into();
            to.push(Column { name, unit, offset_bytes, number: *number });
            // Names that are equal once they are cut would be no columns of a table.
            let (last, before) = to.split_last()?;
            let is_new = before.iter().all(|column| column.name != last.name);
            (is_new && to.len() <= MOST_COLUMNS).then_some(())
        }
        Type::Array { of, stride_bytes, count } => {
            // Elements without bytes have no columns: the first one says whether something in them is unknown.
            let count = if *stride_bytes == 0 { (*count).min(1) } else { *count };
            (0..count).try_for_each(|i| {
                let begin = i.checked_mul(*stride_bytes)?.checked_add(offset_bytes)?;
                // No record is longer.
                if begin > MOST_COLUMNS as u32 {
                    return None;
                }
                add_columns(of, &inner(&i), unit, begin, to)
            })
        }
        Type::Struct { fields, .. } => fields.iter().try_for_each(|field| {
            let unit = if field.unit.is_empty() { unit } else { field.unit };
            let begin = offset_bytes.checked_add(field.offset_bytes)?;
            add_columns(field.ty, &inner(&field.name), unit, begin, to)
        }),
        Type::Unknown => None,
    }
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// A number of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordValue {
    /// Of an unsigned type.
    Unsigned(u64),
    /// Of a signed type.
    Signed(i64),
    /// An `f32`, or a number of 16 bits.
    F32(f32),
    /// An `f64`.
    F64(f64),
}

impl RecordValue {
    #[inline]
    fn of(number: Number, bytes: &[u8]) -> Self {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        match number {
            Number::U8 | Number::U16 | Number::U32 | Number::U64 => Self::Unsigned(word),
            Number::I8 => Self::Signed((word as i8).into()),
            Number::I16 => Self::Signed((word as i16).into()),
            Number::I32 => Self::Signed((word as i32).into()),
            Number::I64 => Self::Signed(word as i64),
            Number::F32 => Self::F32(f32::from_bits(word as u32)),
            Number::F64 => Self::F64(f64::from_bits(word)),
            Number::F16 => Self::F32(f16::from_bits(word as u16).to_f32()),
            Number::BF16 => Self::F32(bf16::from_bits(word as u16).to_f32()),
        }
    }

    fn to_format(self, number: Number) -> Value<'static> {
        match (self, number) {
            (Self::Unsigned(value), _) => Value::Unsigned(value),
            (Self::Signed(value), Number::I8) => Value::I8(value as i8),
            (Self::Signed(value), Number::I16) => Value::I16(value as i16),
            (Self::Signed(value), Number::I32) => Value::I32(value as i32),
            (Self::Signed(value), _) => Value::I64(value),
            (Self::F32(value), _) => Value::F32(value),
            (Self::F64(value), _) => Value::F64(value),
        }
    }
}

impl fmt::Display for RecordValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::F32(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
        }
    }
}

/// Prints records as their descriptor says.
pub struct RecordPrinter {
    descriptor: Arc<Descriptor>,
    /// The format, and the column of each of its arguments.
    format: Option<(Format, Vec<usize>)>,
    values: Vec<Value<'static>>,
}

impl RecordPrinter {
    /// A printer for these records. A format that is none is left out.
    pub fn new(descriptor: Arc<Descriptor>) -> Self {
        let mut used = Vec::new();
        let parsed = Format::parse_with(&descriptor.format, &mut |name, _| {
            let column = descriptor.columns.iter().position(|column| &*column.name == name)?;
            // A value that is shown twice is one argument.
            let at = used.iter().position(|of| *of == column).unwrap_or(used.len());
            if at == used.len() {
                used.push(column);
            }
            Some(at)
        });
        let format = parsed.ok().filter(|_| !descriptor.format.is_empty()).map(|format| (format, used));
        Self { descriptor, format, values: Vec::new() }
    }

    /// Appends a record as its format says, or else as its columns with names and units.
    pub fn print(&mut self, record: &[u8], to: &mut Vec<u8>) {
        let columns = &self.descriptor.columns;
        if let Some((format, used)) = &self.format {
            let value = |column: &usize| {
                let column = &columns[*column];
                Descriptor::value(column, record).to_format(column.number)
            };
            self.values.clear();
            self.values.extend(used.iter().map(value));
            if format.render(&self.values, to).is_ok() {
                return;
            }
        }
        for (i, column) in columns.iter().enumerate() {
            let (space, value) = (if i == 0 { "" } else { " " }, Descriptor::value(column, record));
            to.extend(format!("{space}{}={value}{}", column.name, column.unit).as_bytes());
        }
    }
}

/// The streams that a trace has named so far. It keeps a bounded number of descriptors, however many a file
/// gives.
#[derive(Clone, Debug, Default)]
pub struct Streams(BTreeMap<u16, NamedStream>);

/// What a trace says of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedStream {
    /// Its name.
    pub name: Arc<str>,
    /// The name of its policy.
    pub policy: Arc<str>,
    /// Bytes of each record; 1 for bytes.
    pub record_bytes: u32,
    /// What its records consist of, if the file says it.
    pub descriptor: Option<Arc<Descriptor>>,
}

impl Streams {
    /// Takes what an event says of streams.
    pub fn note(&mut self, event: &Event) {
        if let Event::Stream { stream, record_bytes, name, policy, descriptor, .. } = event {
            let descriptor = descriptor.clone().filter(|_| self.0.len() < MOST_STREAMS);
            let (name, policy, record_bytes) = (name.clone(), policy.clone(), *record_bytes);
            // What a file says of a stream holds for all of its pages.
            let named = NamedStream { name, policy, record_bytes, descriptor };
            self.0.entry(*stream).or_insert(named);
        }
    }

    /// Returns a stream, if the trace has named it.
    pub fn get(&self, stream: u16) -> Option<&NamedStream> {
        self.0.get(&stream)
    }

    /// Returns the streams with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &NamedStream)> {
        self.0.iter().map(|(number, stream)| (*number, stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_abi::record::Field;

    const F32: &Type = &Type::Number(Number::F32);
    const POINT: &Type = &Type::Struct {
        name: "Point",
        format: "",
        fields: &[
            Field { name: "x", unit: "", offset_bytes: 0, ty: F32 },
            Field { name: "y", unit: "mm", offset_bytes: 4, ty: F32 },
        ],
    };
    const HIT: &Type = &Type::Struct {
        name: "Hit",
        format: "{kind:#x} at {{x}}, {delta:+}",
        fields: &[
            Field {
                name: "points",
                unit: "m",
                offset_bytes: 0,
                ty: &Type::Array { of: POINT, stride_bytes: 8, count: 2 },
            },
            Field { name: "delta", unit: "", offset_bytes: 16, ty: &Type::Number(Number::I16) },
            Field { name: "kind", unit: "", offset_bytes: 18, ty: &Type::Number(Number::U8) },
        ],
    };

    #[test]
    fn columns_have_the_names_of_what_they_are_in() {
        let hit = Descriptor::of(HIT).unwrap();
        let columns: Vec<_> =
            hit.columns.iter().map(|c| (&*c.name, &*c.unit, c.offset_bytes, c.number.name())).collect();
        let expected = [
            ("points.0.x", "m", 0, "f32"),
            ("points.0.y", "mm", 4, "f32"),
            ("points.1.x", "m", 8, "f32"),
            ("points.1.y", "mm", 12, "f32"),
            ("delta", "", 16, "i16"),
            ("kind", "", 18, "u8"),
        ];
        assert_eq!(columns, expected);
        let word = Descriptor::of(&Type::Number(Number::U64)).unwrap();
        assert_eq!(&*word.columns[0].name, "value");
        assert_eq!(Descriptor::of(&Type::Unknown), None);
        let unknown = &Type::Array { of: &Type::Unknown, stride_bytes: 8, count: 2 };
        assert_eq!(Descriptor::of(unknown), None);
        assert_eq!(Descriptor::of(&Type::Array { of: F32, stride_bytes: 4, count: 129 }), None);
    }

    #[test]
    fn numbers_of_16_bits_have_their_values() {
        let value = |number, bits: u16| RecordValue::of(number, &bits.to_le_bytes()).to_string();
        let f16 = |bits| value(Number::F16, bits);
        assert_eq!(
            [0x3e00, 0xc000, 0x7bff, 0x0001, 0x8000].map(f16),
            ["1.5", "-2", "65504", "0.000000059604645", "-0"]
        );
        assert_eq!([0x7c00, 0xfc00, 0x7e00].map(f16), ["inf", "-inf", "NaN"]);
        assert_eq!([0x3fc0, 0xc000].map(|bits| value(Number::BF16, bits)), ["1.5", "-2"]);
        for bits in 0..0x7c00u16 {
            let (exponent, fraction) = (i32::from(bits >> 10), f64::from(bits & 0x3ff) / 1024.0);
            let whole = if exponent == 0 {
                fraction * 2f64.powi(-14)
            } else {
                (1.0 + fraction) * 2f64.powi(exponent - 15)
            };
            assert_eq!(f64::from(half::f16::from_bits(bits).to_f32()), whole);
        }
    }

    #[test]
    fn what_has_no_columns_takes_no_time() {
        const EMPTY: &Type = &Type::Struct { name: "Empty", format: "", fields: &[] };
        const fn many(of: &'static Type, stride_bytes: u32) -> Type {
            Type::Array { of, stride_bytes, count: u32::MAX }
        }
        const NOTHINGS: &Type = &many(&many(EMPTY, 0), 0);
        const FIELDS: &[Field] = &[
            Field { name: "nothings", unit: "", offset_bytes: 0, ty: NOTHINGS },
            Field { name: "x", unit: "", offset_bytes: 0, ty: F32 },
            Field { name: "end", unit: "", offset_bytes: 128, ty: NOTHINGS },
        ];
        let record = Descriptor::of(&Type::Struct { name: "", format: "", fields: FIELDS }).unwrap();
        assert_eq!(record.columns.iter().map(|column| &*column.name).collect::<Vec<_>>(), ["x"]);
        const UNKNOWN: &Type = &many(&many(&Type::Unknown, 0), 0);
        // Types that somebody wrote by hand.
        const GAPS: &Type = &many(&many(EMPTY, 1), u32::MAX);
        const FAR: Field = Field { name: "far", unit: "", offset_bytes: u32::MAX, ty: F32 };
        const FURTHER: &Type = &Type::Struct {
            name: "",
            format: "",
            fields: &[Field { ty: &Type::Struct { name: "", format: "", fields: &[FAR] }, ..FAR }],
        };
        for none in [NOTHINGS, UNKNOWN, GAPS, FURTHER] {
            assert_eq!(Descriptor::of(none), None);
        }
    }

    #[test]
    fn a_file_says_the_same_or_nothing() {
        let hit = Descriptor::of(HIT).unwrap();
        let mut bytes = Vec::new();
        hit.put(&mut bytes);
        assert_eq!(Descriptor::take(&mut Fields(&bytes), 24), Some(hit.clone()));
        assert_eq!(Descriptor::take(&mut Fields(&bytes), 18), None, "a column behind the record's end");
        for at in 0..bytes.len() {
            assert_eq!(Descriptor::take(&mut Fields(&bytes[..at]), 24), None, "cut at {at}");
        }
        let twice = Descriptor { columns: vec![hit.columns[4].clone(); 2], ..hit };
        let mut bytes = Vec::new();
        twice.put(&mut bytes);
        assert_eq!(Descriptor::take(&mut Fields(&bytes), 24), None, "two columns of one name");
    }

    #[test]
    fn records_print_as_their_format_says() {
        let mut record = [0; 24];
        record[4..8].copy_from_slice(&1.5f32.to_le_bytes());
        record[16..18].copy_from_slice(&(-3i16).to_le_bytes());
        record[18] = 255;
        let printed = |format: &str| {
            let descriptor = Descriptor { format: format.into(), ..Descriptor::of(HIT).unwrap() };
            let mut to = Vec::new();
            RecordPrinter::new(descriptor.into()).print(&record, &mut to);
            String::from_utf8(to).unwrap()
        };
        assert_eq!(printed("{kind:#x} at {{x}}, {delta:+}"), "0xff at {x}, -3");
        // A format has 12 arguments at most, each as often as it likes.
        assert_eq!(printed(&"{kind}".repeat(13)), "255".repeat(13));
        let columns = "points.0.x=0m points.0.y=1.5mm points.1.x=0m points.1.y=0mm delta=-3 kind=255";
        for none in ["", "{nobody}", "{", "{0}"] {
            assert_eq!(printed(none), columns);
        }
    }
}
