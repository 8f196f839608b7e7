//! MessagePack, as far as code objects' metadata uses it.

use super::{Refused, refuse};

/// A value of a MessagePack document.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing, a floating-point number or binary data: nothing that metadata uses.
    Other,
    /// A number of at least 0; negative ones are [`Value::Other`].
    Number(u64),
    /// `true` or `false`.
    Flag(bool),
    /// A text.
    Text(&'a str),
    /// A list.
    List(Vec<Value<'a>>),
    /// Keys and values.
    Map(Vec<(Value<'a>, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// Returns the value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Map(pairs) => pairs.iter().find(|(k, _)| *k == Value::Text(key)).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns a key's number.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns a key's text.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a list's values.
    pub fn items(&self) -> impl Iterator<Item = &Value<'a>> {
        match self {
            Value::List(items) => items.iter(),
            _ => [].iter(),
        }
    }
}

/// How deep values may nest.
const DEEPEST: u32 = 16;

/// Reads a document.
///
/// # Errors
///
/// It ends too early, nests too deep, or holds something that is no MessagePack.
pub fn read(bytes: &[u8]) -> Result<Value<'_>, Refused> {
    Reader { bytes }.value(0)
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Refused> {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => refuse!("its metadata ends too early"),
        }
    }

    /// Reads a number of so many bytes, the largest first.
    fn number(&mut self, bytes: usize) -> Result<u64, Refused> {
        Ok(self.take(bytes)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn value(&mut self, depth: u32) -> Result<Value<'a>, Refused> {
        if depth > DEEPEST {
            refuse!("its metadata nests too deep");
        }
        let head = self.take(1)?[0];
        Ok(match head {
            0x00..=0x7f => Value::Number(u64::from(head)),
            0x80..=0x8f => self.map(u64::from(head & 15), depth)?,
            0x90..=0x9f => self.list(u64::from(head & 15), depth)?,
            0xa0..=0xbf => self.text(u64::from(head & 31))?,
            0xc2 | 0xc3 => Value::Flag(head == 0xc3),
            0xc4..=0xc6 => {
                let length = self.number(1 << (head - 0xc4))?;
                self.take(length as usize)?;
                Value::Other
            }
            0xca | 0xcb => {
                self.take(if head == 0xca { 4 } else { 8 })?;
                Value::Other
            }
            0xcc..=0xcf => Value::Number(self.number(1 << (head - 0xcc))?),
            0xd0..=0xd3 => {
                let bytes = 1 << (head - 0xd0);
                let number = self.number(bytes)?;
                let negative = number >> (8 * bytes - 1) & 1 != 0;
                if negative { Value::Other } else { Value::Number(number) }
            }
            0xd9..=0xdb => {
                let length = self.number(1 << (head - 0xd9))?;
                self.text(length)?
            }
            0xdc | 0xdd => {
                let length = self.number(if head == 0xdc { 2 } else { 4 })?;
                self.list(length, depth)?
            }
            0xde | 0xdf => {
                let length = self.number(if head == 0xde { 2 } else { 4 })?;
                self.map(length, depth)?
            }
            0xc0 | 0xe0..=0xff => Value::Other,
            _ => refuse!("its metadata holds the byte {head:#x}, which is no MessagePack value there"),
        })
    }

    fn text(&mut self, length: u64) -> Result<Value<'a>, Refused> {
        match std::str::from_utf8(self.take(length as usize)?) {
            Ok(text) => Ok(Value::Text(text)),
            Err(_) => refuse!("its metadata holds a text that is not UTF-8"),
        }
    }

    fn list(&mut self, length: u64, depth: u32) -> Result<Value<'a>, Refused> {
        // Every value takes a byte at least, so a lying length ends at the document's end.
        (0..length).map(|_| self.value(depth + 1)).collect::<Result<_, _>>().map(Value::List)
    }

    fn map(&mut self, length: u64, depth: u32) -> Result<Value<'a>, Refused> {
        let pair = |_| Ok((self.value(depth + 1)?, self.value(depth + 1)?));
        (0..length).map(pair).collect::<Result<_, _>>().map(Value::Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let document = b"\x82\xa1a\x93\x01\xcd\x12\x34\xc3\xa1b\xd9\x03xyz";
        let value = read(document).expect("it is MessagePack");
        assert_eq!(value.text("b"), Some("xyz"));
        let items: Vec<_> = value.get("a").expect("it is there").items().cloned().collect();
        assert_eq!(items, [Value::Number(1), Value::Number(0x1234), Value::Flag(true)]);
    }

    #[test]
    fn lies_are_refused() {
        assert!(read(b"").is_err());
        assert!(read(b"\xdf\xff\xff\xff\xff\x01").is_err());
        assert!(read(b"\xdb\xff\xff\xff\xffabc").is_err());
        assert!(read(&[0x91; 100]).is_err());
        assert!(read(b"\xa2\xff\xfe").is_err());
    }
}
