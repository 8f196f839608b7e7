//! Functions of a PTX text, statement by statement.

/// A function of PTX text that has a body.
pub(crate) struct Function<'t> {
    pub name: &'t str,
    pub is_entry: bool,
    /// What stands before its braces, from the beginning of its line on: a part of the text, as its body is.
    pub header: &'t str,
    /// What stands between its braces.
    pub body: &'t str,
    pub statements: Vec<Statement<'t>>,
    /// Bytes of its variables that lie on the stack.
    pub frame_bytes: u64,
}

/// What functions of `core` and of the device crate are for, by their mangled names.
impl Function<'_> {
    /// Whether it is where waves end that have slots.
    pub fn is_end_of_waves(&self) -> bool {
        let names = ["8end_part", "7end_all"];
        names.iter().any(|name| self.name.contains(&format!("15hostcall_device6target3gpu{name}")))
    }

    /// Whether one comes back from it.
    pub fn returns(&self) -> bool {
        self.statements.iter().any(|statement| statement.opcode == "ret")
    }

    /// Whether it posts for a call of its own, which tells the host of all posts: it is where all panics get to, or asks for the number
    /// of a trace point.
    pub fn tells_of_posts(&self) -> bool {
        let names = ["rust_begin_unwind", "4core9panicking", "15hostcall_device6panics"];
        let is_registering =
            ["15hostcall_device5trace", "5Point8register"].iter().all(|part| self.name.contains(part));
        is_registering || names.iter().any(|name| self.name.contains(name))
    }
}

/// The functions of a text.
pub(crate) fn functions(ptx: &str) -> impl Iterator<Item = Function<'_>> {
    texts(ptx).into_iter().filter_map(|text| {
        let (header, body) = text.split_once("\n{")?;
        let (at, keyword) =
            [".entry ", ".func "].iter().filter_map(|word| Some((header.rfind(word)?, *word))).max()?;
        let line = header[..at].rfind('\n').map_or(0, |end| end + 1);
        let (whole, header) = (&header[line..], header[at + keyword.len()..].trim_start());
        // The result stands before the name.
        let name =
            header.strip_prefix('(').map_or(header, |result| result.split_once(')').unwrap_or_default().1);
        let name = name.trim_start().split(['(', '\n']).next()?;
        let is_entry = keyword == ".entry ";
        Some(Function {
            name,
            is_entry,
            header: whole,
            body,
            statements: statements(body).collect(),
            frame_bytes: frame_bytes(body),
        })
    })
}

/// The parts of a text that end before a body's last brace, which begins its line. Lines of inline assembly begin with
/// anything.
fn texts(ptx: &str) -> Vec<&str> {
    let (mut texts, mut start, mut at, mut assembly) = (Vec::new(), 0, 0, Assembly::default());
    for line in ptx.split_inclusive('\n') {
        if !assembly.has(line) && line.starts_with('}') {
            texts.push(&ptx[start..at]);
            start = at + 1;
        }
        at += line.len();
    }
    texts
}

/// Follows a text line by line.
#[derive(Default)]
pub(crate) struct Assembly {
    is_open: bool,
}

impl Assembly {
    /// Whether the next line is one of inline assembly, or begins or ends some.
    pub fn has(&mut self, line: &str) -> bool {
        let before = self.is_open;
        match line.trim() {
            "// begin inline asm" => self.is_open = true,
            "// end inline asm" => self.is_open = false,
            _ => {}
        }
        before || self.is_open
    }
}

/// What a function's body declares on the stack.
fn frame_bytes(body: &str) -> u64 {
    let variables = body.lines().filter(|line| line.trim_start().starts_with(".local "));
    let bytes = variables.filter_map(|line| line.rsplit_once('[')?.1.split(']').next()?.parse::<u64>().ok());
    bytes.sum()
}

/// An instruction or a label.
pub(crate) struct Statement<'t> {
    /// A label has its colon.
    pub opcode: &'t str,
    pub operands: &'t str,
    pub is_predicated: bool,
    /// The predicate, or nothing.
    pub predicate: &'t str,
}

impl<'t> Statement<'t> {
    /// Names, registers and numbers among the operands.
    pub fn words(&self) -> impl Iterator<Item = &'t str> {
        words(self.operands)
    }
}

/// Names, registers and numbers in a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && !"_$%".contains(c)).filter(|word| !word.is_empty())
}

fn statements(body: &str) -> impl Iterator<Item = Statement<'_>> {
    let lines = body.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(|line| line.split(';')).filter_map(|text| {
        let text = text.trim_start_matches(['{', '}', ' ', '\t']).trim_end();
        let (predicate, text) = match text.strip_prefix('@') {
            Some(predicated) => predicated.split_once([' ', '\t'])?,
            None => ("", text),
        };
        let text = text.trim_start();
        let (opcode, operands) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let is_statement = !opcode.is_empty() && !opcode.starts_with('.');
        is_statement.then_some(Statement {
            opcode,
            operands: operands.trim_start(),
            is_predicated: !predicate.is_empty(),
            predicate,
        })
    })
}
