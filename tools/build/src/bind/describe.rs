//! Description files: services in TOML, for teams that write no Rust.
//!
//! A description becomes the Rust that says the same. So both have one reader, and one schema hash.

use super::types::{SCALARS, Wrong};
use hostcall_abi::service::number;
use std::collections::HashSet;
use std::fmt::Display;
use syn::Ident;
use syn::ext::IdentExt;
use syn::parse::Parser;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Longest type, in bytes.
const MOST_TYPE_BYTES: usize = 256;

/// Most signs of a type that can begin something within it. They bound how deep it goes, and so the stack of who reads it.
const MOST_SIGNS: usize = 32;

type Result<T> = std::result::Result<T, Wrong>;
type Name<'a> = Spanned<DeString<'a>>;
type Value<'a> = Spanned<DeValue<'a>>;

/// The Rust of a description.
pub(super) struct Described {
    pub rust: String,
    /// For each line of it, the description's.
    lines: Vec<usize>,
}

impl Described {
    /// Returns the description's line of a line of the Rust, both from 1.
    pub fn line(&self, of_rust: usize) -> usize {
        of_rust.checked_sub(1).and_then(|at| self.lines.get(at)).copied().unwrap_or(1)
    }
}

/// Reads a description.
pub(super) fn read(text: &str) -> Result<Described> {
    let ends = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut reader =
        Reader { ends, types: HashSet::new(), made: Described { rust: String::new(), lines: Vec::new() } };
    let parsed = DeTable::parse(text).map_err(|error| {
        let what_to_do = if error.message() == "duplicate key" { ": rename one of the two" } else { "" };
        reader.wrong(error.span().map_or(0, |span| span.start), format!("{}{what_to_do}", error.message()))
    })?;
    for (kind, items) in in_order(parsed.get_ref()) {
        let read = match &**kind.get_ref() {
            "service" => Reader::service,
            "struct" => Reader::record,
            "enum" => Reader::choice,
            other => {
                let message = format!(
                    "a description has [service.NAME], [struct.NAME] and [enum.NAME], and no `{other}`"
                );
                return Err(reader.wrong(kind.span().start, message));
            }
        };
        for (name, item) in in_order(reader.table(items)?) {
            let item = reader.table(item)?;
            read(&mut reader, name, item)?;
        }
    }
    Ok(reader.made)
}

/// Returns what a table has in the order of the file, from which methods have their numbers.
fn in_order<'t, 'a>(table: &'t DeTable<'a>) -> Vec<(&'t Name<'a>, &'t Value<'a>)> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_by_key(|(name, _)| name.span().start);
    all
}

struct Reader {
    /// Where lines of the description end.
    ends: Vec<usize>,
    /// Names of the structs and enums so far.
    types: HashSet<String>,
    made: Described,
}

impl Reader {
    fn line_of(&self, at: usize) -> usize {
        self.ends.partition_point(|end| *end < at) + 1
    }

    fn wrong(&self, at: usize, message: impl Display) -> Wrong {
        // A message of several lines is one sentence.
        Wrong { line: self.line_of(at), message: message.to_string().replace('\n', ", ") }
    }

    /// Adds a line of Rust for what stands at a place of the description.
    fn add(&mut self, at: usize, line: impl Display) {
        self.made.rust += &format!("{line}\n");
        let line = self.line_of(at);
        self.made.lines.push(line);
    }

    fn table<'t, 'a>(&self, value: &'t Value<'a>) -> Result<&'t DeTable<'a>> {
        let message = "this is a table: write `{ name = \"u64\" }`, or [service.NAME] above it";
        value.get_ref().as_table().ok_or_else(|| self.wrong(value.span().start, message))
    }

    fn text<'t>(&self, value: &'t Value<'_>) -> Result<&'t str> {
        let message = "this is a text: write it in quotes, as \"u64\"";
        value.get_ref().as_str().ok_or_else(|| self.wrong(value.span().start, message))
    }

    /// Returns a name as Rust writes it, whose own words are names all the same.
    fn name(&self, name: &Name<'_>) -> Result<String> {
        let text = &**name.get_ref();
        if syn::parse_str::<Ident>(text).is_ok() {
            return Ok(text.to_owned());
        }
        if Ident::parse_any.parse_str(text).is_ok()
            && !["_", "self", "Self", "super", "crate"].contains(&text)
        {
            return Ok(format!("r#{text}"));
        }
        Err(self.wrong(name.span().start, format!("`{text}` is no name: take letters, digits and `_`")))
    }

    /// Returns the name of a struct or an enum as Rust writes it: none that Rust has for a type, or the file for another one.
    fn type_name(&mut self, name: &Name<'_>) -> Result<String> {
        let text = &**name.get_ref();
        let is_scalar = SCALARS.iter().any(|scalar| scalar.rust == text);
        if is_scalar || ["Option", "Result", "Caller", "str", "u128", "i128"].contains(&text) {
            let message = format!("`{text}` is a type of its own: give this one another name");
            return Err(self.wrong(name.span().start, message));
        }
        if !self.types.insert(text.to_owned()) {
            let message = format!("a struct and an enum are both `{text}`: rename one of the two");
            return Err(self.wrong(name.span().start, message));
        }
        self.name(name)
    }

    /// Returns a type as Rust writes it.
    fn of(&self, value: &Value<'_>) -> Result<String> {
        let text = self.text(value)?;
        let wrong = |why: &str| self.wrong(value.span().start, format!("`{text:.40}` is no type: {why}"));
        if ["str", "bytes", "bytes out"].contains(&text) {
            return Err(wrong(
                "it is for arguments alone, where \"bytes out\" has what the method gives back",
            ));
        }
        if text.len() > MOST_TYPE_BYTES {
            return Err(wrong("a type has up to 256 bytes"));
        }
        // All but what ends something, or stands between two.
        let begins = |letter: &char| letter.is_ascii_punctuation() && !"_,;:)]}>".contains(*letter);
        if text.chars().filter(begins).count() > MOST_SIGNS {
            return Err(wrong("it has too much within: take a struct for some of it"));
        }
        let known = "take u8 to u64, i8 to i64, f32, f64, bool, char, Option<u64>, [u64; 4], (u64, f32), or a struct or enum of \
                     the file";
        let tokens: proc_macro2::TokenStream = text.parse().map_err(|_| wrong(known))?;
        if let syn::Type::Reference(_) = syn::parse2(tokens.clone()).map_err(|_| wrong(known))? {
            return Err(wrong(
                "no type begins with `&`: take \"str\", \"bytes\" or \"bytes out\" for arguments",
            ));
        }
        // Without comments, and in one line.
        Ok(tokens.to_string())
    }

    fn about(&mut self, value: &Value<'_>) -> Result<()> {
        for line in self.text(value)?.lines() {
            self.add(value.span().start, format_args!("#[doc = {line:?}]"));
        }
        Ok(())
    }

    fn service(&mut self, name: &Name<'_>, service: &DeTable<'_>) -> Result<()> {
        let at = name.span().start;
        let Some(chosen) = service.get("number") else {
            let message = format!(
                "the service `{}` has no number: write `number = 256`, say, from 256 to 32767; its methods have it and those \
                 that follow",
                name.get_ref()
            );
            return Err(self.wrong(at, message));
        };
        let parsed = chosen.get_ref().as_integer();
        let parsed = parsed.and_then(|number| u16::from_str_radix(number.as_str(), number.radix()).ok());
        let Some(first) = parsed.filter(|first| (number::USER..number::DERIVED).contains(first)) else {
            return Err(self.wrong(chosen.span().start, "a service's number is one from 256 to 32767"));
        };
        if let Some(about) = service.get("about") {
            self.about(about)?;
        }
        self.add(chosen.span().start, format_args!("#[service(number = {first})]"));
        let name = self.name(name)?;
        self.add(at, format_args!("trait {name} {{"));
        for (name, method) in in_order(service) {
            if !["number", "about"].contains(&&**name.get_ref()) {
                self.method(name, self.table(method)?)?;
            }
        }
        self.add(at, "}");
        Ok(())
    }

    fn method(&mut self, name: &Name<'_>, method: &DeTable<'_>) -> Result<()> {
        let at = name.span().start;
        for (key, _) in method {
            if !["arguments", "result", "about"].contains(&&**key.get_ref()) {
                let message =
                    format!("a method has `arguments`, `result` and `about`, and no `{}`", key.get_ref());
                return Err(self.wrong(key.span().start, message));
            }
        }
        if let Some(about) = method.get("about") {
            self.about(about)?;
        }
        let name = self.name(name)?;
        self.add(at, format_args!("fn {name}("));
        if let Some(arguments) = method.get("arguments") {
            for (name, value) in in_order(self.table(arguments)?) {
                let of = match value.get_ref().as_str() {
                    Some("str") => "&str".into(),
                    Some("bytes") => "&[u8]".into(),
                    Some("bytes out") => "&mut [u8]".into(),
                    _ => self.of(value)?,
                };
                let name_in_rust = self.name(name)?;
                self.add(name.span().start, format_args!("{name_in_rust}: {of},"));
            }
        }
        match method.get("result") {
            Some(result) => {
                let of = self.of(result)?;
                self.add(result.span().start, format_args!(") -> {of};"));
            }
            None => self.add(at, ");"),
        }
        Ok(())
    }

    /// A struct, and its fields.
    fn record(&mut self, name: &Name<'_>, fields: &DeTable<'_>) -> Result<()> {
        let at = name.span().start;
        let name = self.type_name(name)?;
        self.add(at, format_args!("struct {name} {{"));
        self.fields(fields)?;
        self.add(at, "}");
        Ok(())
    }

    fn fields(&mut self, fields: &DeTable<'_>) -> Result<()> {
        for (name, value) in in_order(fields) {
            let (name_in_rust, of) = (self.name(name)?, self.of(value)?);
            self.add(name.span().start, format_args!("{name_in_rust}: {of},"));
        }
        Ok(())
    }

    /// An enum, and its variants: an array of types, or a table of fields.
    fn choice(&mut self, name: &Name<'_>, variants: &DeTable<'_>) -> Result<()> {
        let at = name.span().start;
        let name = self.type_name(name)?;
        self.add(at, format_args!("enum {name} {{"));
        for (name, value) in in_order(variants) {
            let (at, name) = (name.span().start, self.name(name)?);
            match value.get_ref().as_array() {
                None => {
                    self.add(at, format_args!("{name} {{"));
                    self.fields(self.table(value)?)?;
                    self.add(at, "},");
                }
                Some(types) if types.is_empty() => self.add(at, format_args!("{name},")),
                Some(types) => {
                    let types = types.iter().map(|of| self.of(of)).collect::<Result<Vec<_>>>()?;
                    self.add(at, format_args!("{name}({}),", types.join(", ")));
                }
            }
        }
        self.add(at, "}");
        Ok(())
    }
}
