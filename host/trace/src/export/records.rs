//! The records of one stream as a table with a column for each of their numbers.

use super::Export;
use super::arrow::{BATCH_ROWS, BEGAN, Sink, of_arrow};
use crate::descriptor::{Descriptor, NamedStream};
use crate::names::Names;
use crate::record::{Event, Page};
use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch, types};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use csv::Writer;
use half::{bf16, f16};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::record::Number;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// What a table says of the page of each record, before the record's own columns.
///
/// The launch is its id as it is printed elsewhere, and as the column `launch_id` of the table of calls has it.
const PAGE_COLUMNS: [(&str, Option<Number>); 6] = [
    ("page.sequence", Some(Number::U64)),
    ("page.opened_ns", Some(Number::U64)),
    ("page.launch", None),
    ("page.slot", Some(Number::U32)),
    ("page.workgroup", Some(Number::U32)),
    ("page.wave", Some(Number::U32)),
];

fn launch_id(bits: u64) -> String {
    LaunchId::from_bits(bits as u32).to_string()
}

fn page_values(page: &Page) -> [u64; PAGE_COLUMNS.len()] {
    let Page { sequence, opened_ns, launch, slot, workgroup, wave, .. } = page;
    let words = [*launch, *slot, *workgroup, *wave].map(u64::from);
    [*sequence, *opened_ns, words[0], words[1], words[2], words[3]]
}

/// The name of a record's column: not one of a page's.
fn name_of(name: &str) -> String {
    let is_taken = PAGE_COLUMNS.iter().any(|(taken, _)| *taken == name);
    if is_taken { format!("record.{name}") } else { name.to_owned() }
}

/// What is known of the stream that is exported.
pub(super) struct Described {
    pub number: u16,
    pub name: Arc<str>,
    pub record_bytes: usize,
    pub descriptor: Arc<Descriptor>,
}

impl Described {
    pub fn new(number: u16, stream: &NamedStream) -> Option<Self> {
        let descriptor = stream.descriptor.clone()?;
        Some(Self {
            number,
            name: stream.name.clone(),
            record_bytes: stream.record_bytes as usize,
            descriptor,
        })
    }

    /// The schema of the table. A column's metadata has its unit, the table's the type's name and format.
    pub fn schema(&self, began_unix_ns: u64) -> SchemaRef {
        let of_page = PAGE_COLUMNS
            .iter()
            .map(|(name, number)| Field::new(*name, number.map_or(DataType::Utf8, data_type), false));
        let of_record = self.descriptor.columns.iter().map(|column| {
            let field = Field::new(name_of(&column.name), data_type(column.number), false);
            match &*column.unit {
                "" => field,
                unit => field.with_metadata(HashMap::from([("unit".to_owned(), unit.to_owned())])),
            }
        });
        let Descriptor { name, format, .. } = &*self.descriptor;
        let metadata = [
            (BEGAN, began_unix_ns.to_string()),
            ("stream", self.name.to_string()),
            ("type", name.to_string()),
            ("format", format.to_string()),
        ];
        let metadata = metadata.into_iter().filter(|(_, value)| !value.is_empty());
        let metadata: HashMap<_, _> = metadata.map(|(key, value)| (key.to_owned(), value)).collect();
        Arc::new(Schema::new_with_metadata(of_page.chain(of_record).collect::<Vec<_>>(), metadata))
    }
}

macro_rules! numbers {
    ($($number:ident $ty:ty, $array:ident, $of_bytes:expr;)*) => {
        /// Values of a column that are not written yet.
        enum Values {
            $($number(Vec<$ty>),)*
            /// Ids of launches.
            Launch(StringBuilder),
        }

        impl Values {
            fn new(number: Number) -> Self {
                match number {
                    $(Number::$number => Self::$number(Vec::with_capacity(BATCH_ROWS)),)*
                }
            }

            /// Adds the numbers that stand so far on in each of these records.
            fn extend(&mut self, bytes: &[u8], record_bytes: usize, offset: usize) {
                let records = bytes.chunks_exact(record_bytes);
                match self {
                    $(Self::$number(values) => values.extend(records.map(|record| {
                        $of_bytes(*record[offset..].first_chunk().expect("the column lies in the record"))
                    })),)*
                    Self::Launch(_) => unreachable!("columns of records are numbers"),
                }
            }

            /// Adds the same number so many times.
            fn repeat(&mut self, value: u64, count: usize) {
                match self {
                    $(Self::$number(values) => values.extend(std::iter::repeat_n(value as $ty, count)),)*
                    Self::Launch(values) => values.append_value_n(launch_id(value), count),
                }
            }

            fn take(&mut self) -> ArrayRef {
                match self {
                    $(Self::$number(values) => {
                        let taken = std::mem::replace(values, Vec::with_capacity(BATCH_ROWS));
                        Arc::new(PrimitiveArray::<types::$array>::from_iter_values(taken))
                    })*
                    Self::Launch(values) => Arc::new(values.finish()),
                }
            }
        }

        fn data_type(number: Number) -> DataType {
            use arrow_array::types::ArrowPrimitiveType;
            match number {
                $(Number::$number => <types::$array as ArrowPrimitiveType>::DATA_TYPE,)*
            }
        }
    };
}

numbers! {
    U8 u8, UInt8Type, u8::from_le_bytes;
    U16 u16, UInt16Type, u16::from_le_bytes;
    U32 u32, UInt32Type, u32::from_le_bytes;
    U64 u64, UInt64Type, u64::from_le_bytes;
    I8 i8, Int8Type, i8::from_le_bytes;
    I16 i16, Int16Type, i16::from_le_bytes;
    I32 i32, Int32Type, i32::from_le_bytes;
    I64 i64, Int64Type, i64::from_le_bytes;
    F32 f32, Float32Type, f32::from_le_bytes;
    F64 f64, Float64Type, f64::from_le_bytes;
    // Not every reader of tables has numbers of 16 bits.
    F16 f32, Float32Type, |bytes| f16::from_le_bytes(bytes).to_f32();
    BF16 f32, Float32Type, |bytes| bf16::from_le_bytes(bytes).to_f32();
}

/// Records as record batches.
pub(super) struct RecordBatches<'scope> {
    of: Described,
    schema: SchemaRef,
    columns: Vec<Values>,
    rows: usize,
    sink: Sink<'scope>,
}

impl<'scope> RecordBatches<'scope> {
    pub fn new(of: Described, schema: SchemaRef, sink: Sink<'scope>) -> Self {
        let of_page = PAGE_COLUMNS.iter().map(|(_, number)| match number {
            Some(number) => Values::new(*number),
            None => Values::Launch(StringBuilder::new()),
        });
        let of_record = of.descriptor.columns.iter().map(|column| Values::new(column.number));
        let columns = of_page.chain(of_record).collect();
        Self { of, schema, columns, rows: 0, sink }
    }

    fn write(&mut self) -> io::Result<()> {
        self.rows = 0;
        let arrays = self.columns.iter_mut().map(Values::take).collect();
        self.sink.give(RecordBatch::try_new(self.schema.clone(), arrays).map_err(of_arrow)?)
    }
}

impl Export for RecordBatches<'_> {
    fn event(&mut self, _: &Names, event: &Event) -> io::Result<()> {
        let Event::Page(page) = event else { return Ok(()) };
        if page.stream != self.of.number {
            return Ok(());
        }
        for part in page.bytes.chunks(self.of.record_bytes.saturating_mul(BATCH_ROWS)) {
            let records = part.len() / self.of.record_bytes;
            if self.rows + records > BATCH_ROWS {
                self.write()?;
            }
            let (of_page, of_record) = self.columns.split_at_mut(PAGE_COLUMNS.len());
            for (column, value) in of_page.iter_mut().zip(page_values(page)) {
                column.repeat(value, records);
            }
            for (column, described) in of_record.iter_mut().zip(&self.of.descriptor.columns) {
                column.extend(part, self.of.record_bytes, described.offset_bytes as usize);
            }
            self.rows += records;
        }
        Ok(())
    }

    fn finish(&mut self, _: &Names) -> io::Result<()> {
        self.write()?;
        self.sink.finish()
    }
}

/// Records as comma-separated values.
pub(super) struct RecordCsv<W: Write> {
    of: Described,
    writer: Writer<W>,
    text: Vec<u8>,
}

impl<W: Write> RecordCsv<W> {
    pub fn new(of: Described, to: W) -> io::Result<Self> {
        let mut writer = Writer::from_writer(to);
        let of_page = PAGE_COLUMNS.iter().map(|(name, _)| (*name).to_owned());
        writer
            .write_record(of_page.chain(of.descriptor.columns.iter().map(|column| name_of(&column.name))))?;
        Ok(Self { of, writer, text: Vec::new() })
    }
}

impl<W: Write> Export for RecordCsv<W> {
    fn event(&mut self, _: &Names, event: &Event) -> io::Result<()> {
        let Event::Page(page) = event else { return Ok(()) };
        if page.stream != self.of.number {
            return Ok(());
        }
        let of_page = PAGE_COLUMNS.iter().zip(page_values(page)).map(|((_, number), value)| match number {
            Some(_) => value.to_string(),
            None => launch_id(value),
        });
        let of_page: Vec<_> = of_page.collect();
        for record in page.bytes.chunks_exact(self.of.record_bytes) {
            of_page.iter().try_for_each(|value| self.writer.write_field(value))?;
            for column in &self.of.descriptor.columns {
                self.text.clear();
                write!(self.text, "{}", Descriptor::value(column, record))?;
                self.writer.write_field(&self.text)?;
            }
            self.writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }

    fn finish(&mut self, _: &Names) -> io::Result<()> {
        self.writer.flush()
    }
}
