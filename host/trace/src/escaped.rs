//! Texts of traces as terminals may have them.

use std::borrow::Cow;

/// Returns a text whose control characters are escaped, such as `\u{1b}` and `\n`: a terminal obeys them, and a line
/// feed would make one line two. Who prints what a trace says prints it so, since a trace may be anybody's.
///
/// ```
/// assert_eq!(hostcall_trace::escaped("price in €"), "price in €");
/// assert_eq!(hostcall_trace::escaped("a\u{1b}[2J\n"), r"a\u{1b}[2J\n");
/// ```
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut to = String::new();
    for c in text.chars() {
        match c.is_control() {
            true => to.extend(c.escape_default()),
            false => to.push(c),
        }
    }
    Cow::Owned(to)
}
