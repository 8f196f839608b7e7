//! File names in messages, as GNU's tools write them: a shell reads the name from them again.

use crate::count::character;
use crate::unprintable::is_unprintable;
use alloc::string::String;

/// Characters that mean something to a shell, or to a reader of messages.
const SPECIAL: &[u8] = b" !\"$&()*:;<=>?[\\^`|";

/// Characters that a shell takes between double quotes as they are.
const PLAIN_IN_DOUBLE_QUOTES: &[u8] = b" %+,-./:]_'";

fn is_printable(c: char) -> bool {
    if c.is_ascii() { !c.is_ascii_control() } else { !is_unprintable(c) }
}

/// One part of a name.
enum Part {
    Character(char),
    /// A byte that is not printed as it is.
    Escaped(u8),
}

/// The parts of a name, from its start on.
fn parts(name: &[u8]) -> impl Iterator<Item = Part> {
    let mut at = 0;
    let mut escaped = 0;
    core::iter::from_fn(move || {
        let byte = *name.get(at)?;
        if escaped == 0 {
            let found = if byte < 128 { Some(char::from(byte)) } else { character(&name[at..]) };
            let len = found.map_or(1, char::len_utf8);
            if let Some(c) = found.filter(|c| is_printable(*c)) {
                at += len;
                return Some(Part::Character(c));
            }
            // All bytes of a character that is not printed are escaped.
            escaped = len;
        }
        escaped -= 1;
        at += 1;
        Some(Part::Escaped(byte))
    })
}

/// Returns the name as it stands in a message: as it is, or between quotes if it must be.
pub fn quoted(name: &[u8]) -> String {
    let is_special = |(at, part): (usize, Part)| match part {
        Part::Escaped(_) | Part::Character('\'') => true,
        Part::Character('#' | '~') => at == 0,
        Part::Character('{' | '}') => name.len() == 1,
        Part::Character(c) => u8::try_from(c).is_ok_and(|c| SPECIAL.contains(&c)),
    };
    if !name.is_empty() && !parts(name).enumerate().any(is_special) {
        return String::from_utf8_lossy(name).into_owned();
    }
    let is_plain = |(at, byte): (usize, &u8)| {
        let is_start_of_comment = at == 0 && matches!(byte, b'#' | b'~');
        byte.is_ascii_alphanumeric() || PLAIN_IN_DOUBLE_QUOTES.contains(byte) || is_start_of_comment
    };
    if name.contains(&b'\'') && name.iter().enumerate().all(is_plain) {
        return alloc::format!("\"{}\"", String::from_utf8_lossy(name));
    }
    let mut text = String::from("'");
    let mut in_escape = false;
    for part in parts(name) {
        match part {
            Part::Escaped(byte) => {
                if !in_escape {
                    text.push_str("'$'");
                }
                in_escape = true;
                escape(byte, &mut text);
            }
            Part::Character('\'') => {
                text.push_str("'\\''");
                in_escape = false;
            }
            Part::Character(c) => {
                if in_escape {
                    text.push_str("''");
                }
                in_escape = false;
                text.push(c);
            }
        }
    }
    text.push('\'');
    text
}

/// Writes a byte as C does: by a letter, or by its octal number.
fn escape(byte: u8, text: &mut String) {
    text.push('\\');
    let letter = match byte {
        7 => 'a',
        8 => 'b',
        b'\t' => 't',
        b'\n' => 'n',
        11 => 'v',
        12 => 'f',
        b'\r' => 'r',
        _ => {
            for shift in [6, 3, 0] {
                text.push(char::from(b'0' + (byte >> shift & 7)));
            }
            return;
        }
    };
    text.push(letter);
}
