//! Arrow's record batches, as IPC and as Parquet.

use super::Format;
use super::behind::{Behind, WRITE_BYTES};
use super::rows::{COLUMNS, Row, Table, Type, Value};
use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::thread::Scope;

/// Rows of a record batch.
pub(super) const BATCH_ROWS: usize = 1 << 16;

/// Bytes of text after which a record batch is full: names may be long, and each row has four.
const BATCH_TEXT_BYTES: usize = 16 << 20;

/// Rows of a row group of Parquet, whose compressed pages are in memory until it is written.
const GROUP_ROWS: usize = 1 << 20;

/// Key of the schema's metadata: when the trace began, in nanoseconds since 1970, UTC.
pub(super) const BEGAN: &str = "began_unix_ns";

enum Column {
    Text(StringBuilder),
    Number(UInt64Builder),
}

/// Rows of a record batch that is not full.
struct Batch {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    text_bytes: usize,
}

impl Batch {
    fn new(began_unix_ns: u64) -> Self {
        let fields: Vec<Field> = COLUMNS
            .iter()
            .map(|(name, of)| {
                let data = if *of == Type::Text { DataType::Utf8 } else { DataType::UInt64 };
                Field::new(*name, data, !["event", "begin_ns", "count"].contains(name))
            })
            .collect();
        let columns = COLUMNS.iter().map(|(_, of)| match of {
            Type::Text => Column::Text(StringBuilder::with_capacity(BATCH_ROWS, 16 * BATCH_ROWS)),
            Type::Number | Type::Time => Column::Number(UInt64Builder::with_capacity(BATCH_ROWS)),
        });
        let metadata = HashMap::from([(BEGAN.to_owned(), began_unix_ns.to_string())]);
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        Self { schema, columns: columns.collect(), rows: 0, text_bytes: 0 }
    }

    /// Adds a row. Returns whether the batch is full.
    fn add(&mut self, row: &Row<'_>) -> bool {
        for (column, value) in self.columns.iter_mut().zip(row) {
            match (column, value) {
                (Column::Text(column), Value::Text(text)) => {
                    self.text_bytes += text.len();
                    column.append_value(text);
                }
                (Column::Text(column), _) => column.append_null(),
                (Column::Number(column), Value::Number(number)) => column.append_value(*number),
                (Column::Number(column), _) => column.append_null(),
            }
        }
        self.rows += 1;
        self.rows == BATCH_ROWS || self.text_bytes >= BATCH_TEXT_BYTES
    }

    /// Takes the rows.
    fn take(&mut self) -> io::Result<RecordBatch> {
        (self.rows, self.text_bytes) = (0, 0);
        let arrays = self.columns.iter_mut().map(|column| -> ArrayRef {
            match column {
                Column::Text(column) => Arc::new(column.finish()),
                Column::Number(column) => Arc::new(column.finish()),
            }
        });
        RecordBatch::try_new(self.schema.clone(), arrays.collect()).map_err(of_arrow)
    }
}

/// What writes record batches of one schema.
trait BatchWriter {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()>;
    fn finish(&mut self) -> io::Result<()>;
}

impl<W: Write> BatchWriter for FileWriter<W> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        FileWriter::write(self, batch).map_err(of_arrow)
    }

    fn finish(&mut self) -> io::Result<()> {
        FileWriter::finish(self).map_err(of_arrow)
    }
}

impl<W: Write + Send> BatchWriter for ArrowWriter<W> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        ArrowWriter::write(self, batch).map_err(of_parquet)
    }

    fn finish(&mut self) -> io::Result<()> {
        ArrowWriter::finish(self).map(drop).map_err(of_parquet)
    }
}

/// Begins a Parquet file. Times grow, so that their differences are short, and no two are the same.
fn parquet<W: Write + Send>(to: W, schema: SchemaRef, times: &[&str]) -> io::Result<ArrowWriter<W>> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for time in times {
        let column = ColumnPath::from(*time);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    ArrowWriter::try_new(to, schema, Some(properties.build())).map_err(of_parquet)
}

/// A thread that writes record batches. One is written while the next is filled.
pub(super) type Sink<'scope> = Behind<'scope, RecordBatch>;

/// Begins a file of record batches: Parquet, or Arrow's format for IPC. `times` are columns of times.
pub(super) fn sink<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    to: impl Write + Send + 'scope,
    format: Format,
    schema: SchemaRef,
    times: Vec<&'static str>,
) -> io::Result<Sink<'scope>> {
    Behind::new(scope, 0, move |batches| {
        let mut to = BufWriter::with_capacity(WRITE_BYTES, to);
        let mut writer: Box<dyn BatchWriter + '_> = match format {
            Format::Parquet => Box::new(parquet(&mut to, schema, &times)?),
            _ => Box::new(FileWriter::try_new(&mut to, &schema).map_err(of_arrow)?),
        };
        for batch in batches {
            writer.write(&batch)?;
        }
        writer.finish()?;
        drop(writer);
        to.flush()
    })
}

/// Events as rows of record batches.
pub(super) struct Batches<'scope> {
    batch: Batch,
    sink: Sink<'scope>,
}

impl<'scope> Batches<'scope> {
    /// Begins a file of this format.
    pub fn new<'env>(
        scope: &'scope Scope<'scope, 'env>,
        to: impl Write + Send + 'scope,
        format: Format,
        began_unix_ns: u64,
    ) -> io::Result<Self> {
        let batch = Batch::new(began_unix_ns);
        let times = COLUMNS.iter().filter(|(_, of)| *of == Type::Time).map(|(name, _)| *name).collect();
        Ok(Self { sink: sink(scope, to, format, batch.schema.clone(), times)?, batch })
    }
}

impl Table for Batches<'_> {
    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        if self.batch.add(row) { self.sink.give(self.batch.take()?) } else { Ok(()) }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.sink.give(self.batch.take()?)?;
        self.sink.finish()
    }
}

/// Returns the system's error behind one of Arrow's.
pub(super) fn of_arrow(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        error => io::Error::other(error),
    }
}

/// Returns the system's error behind one of Parquet's.
fn of_parquet(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
