//! Comma-separated values.

use super::rows::{COLUMNS, Row, Table, Value};
use csv::Writer;
use std::io::{self, Write};

pub(super) struct Csv<W: Write> {
    writer: Writer<W>,
    digits: itoa::Buffer,
}

impl<W: Write> Csv<W> {
    pub fn new(to: W) -> io::Result<Self> {
        let mut writer = Writer::from_writer(to);
        writer.write_record(COLUMNS.map(|(name, _)| name))?;
        Ok(Self { writer, digits: itoa::Buffer::new() })
    }
}

impl<W: Write> Table for Csv<W> {
    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        for value in row {
            let text = match value {
                Value::Null => "",
                Value::Text(text) => text,
                Value::Number(number) => self.digits.format(*number),
            };
            self.writer.write_field(text)?;
        }
        Ok(self.writer.write_record(None::<&[u8]>)?)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
