//! The header.

use super::types::{Field, Kind, Method, Service, Type, Variant, Wrong};
use hostcall_abi::MAX_WORDS;
use hostcall_abi::service::number;
use hostcall_abi::word::{MAX_POST_WORDS, check_of};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Returns the header of services that a file of this name has, or why C cannot say it.
pub(super) fn header(mut services: Vec<Service>, file: &str) -> Result<String, Wrong> {
    let stem = file
        .split('.')
        .next()
        .unwrap_or_default()
        .replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    let of_services = services.iter().map(|service| snake(&service.name));
    let guard = of_services
        .fold(format!("hostcall_bound_{stem}"), |all, name| format!("{all}_{name}"))
        .to_uppercase()
        + "_H";
    let mut names = Names::new();
    let mut out =
        format!("/* Made by `hostcall bind` of {file}: make it anew where the service changes. */\n");
    let _ = write!(out, "#ifndef {guard}\n#define {guard}\n#include \"hostcall_device.h\"\n");
    for service in &mut services {
        for method in &mut service.methods {
            make_safe(method).map_err(|message| method.wrong(message))?;
        }
        let mut prefix = snake(&service.name);
        if service.number < number::USER {
            prefix.insert_str(0, "hostcall_");
        }
        if prefix == "hostcall" || prefix.starts_with('_') {
            return Err(
                service.wrong(format!("a service cannot be called `{}` in C: rename it", service.name))
            );
        }
        Writer { out: &mut out, names: &mut names, prefix, known: Vec::new() }.service(service)?;
    }
    Ok(out + "\n#endif\n")
}

/// `TooFew` as `too_few`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    let letters: Vec<char> = name.chars().collect();
    for (at, &letter) in letters.iter().enumerate() {
        let begins = letter.is_uppercase()
            && at > 0
            && letters[at - 1] != '_'
            && (!letters[at - 1].is_uppercase()
                || letters.get(at + 1).is_some_and(|next| next.is_lowercase()));
        if begins {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// Names that C, C++ and their compilers have taken.
const TAKEN: &str = " NULL alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class \
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do \
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int linux long mutable namespace new \
    noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short \
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename \
    typeof union unix unsigned using virtual void volatile wchar_t while xor xor_eq ";

/// Names that headers of C have, besides those of numbers.
const OF_HEADERS: &str = " errno stderr stdin stdout max_align_t nullptr_t ptrdiff_t size_t ssize_t ";

/// What has limits besides `uint64_t` and the like, as if all of them were named so.
const LIMITS: [&str; 7] = ["char_t", "int_t", "long_t", "ptrdiff_t", "short_t", "size_t", "uint_t"];

/// Names that hostcall's header has in functions.
const OWN: &str = " context result timeout_us call_ results_ status_ words_ ";

/// Whether it is a type such as `uint64_t`.
fn is_number(name: &str) -> bool {
    let number = name.strip_suffix("_t").map(|name| name.strip_prefix('u').unwrap_or(name));
    number.and_then(|name| name.strip_prefix("int")).is_some_and(|size| {
        let bits = ["_least", "_fast"].iter().find_map(|kind| size.strip_prefix(kind)).unwrap_or(size);
        ["8", "16", "32", "64", "ptr", "max"].contains(&bits)
    })
}

/// Whether a header of C's may have it: a type of numbers, or a macro, which has no small letters.
fn is_of_headers(name: &str) -> bool {
    let is_macro = name.len() > 1
        && name.starts_with(|letter: char| letter.is_ascii_uppercase())
        && !name.contains(char::is_lowercase);
    is_number(name) || is_macro || OF_HEADERS.contains(&format!(" {name} "))
}

/// A name that C or C++ has taken gets a line after it.
fn safe(name: &str) -> String {
    let is_taken = TAKEN.contains(&format!(" {name} ")) || is_of_headers(name);
    if is_taken { format!("{name}_") } else { name.to_owned() }
}

/// Refuses names that are the compilers' own. Macros have such names, also those of later versions.
fn check_name(name: &str, of: &str) -> Result<(), String> {
    let second = name.strip_prefix('_').and_then(|name| name.chars().next());
    if second.is_some_and(|letter| letter == '_' || letter.is_uppercase()) || name.starts_with("hostcall_") {
        return Err(format!(
            "`{name}` of {of} begins as names of C or of hostcall do (`__`, `_A` or `hostcall_`): rename it"
        ));
    }
    Ok(())
}

/// Gives parameters names that C, C++ and the function itself have not taken.
fn make_safe(method: &mut Method) -> Result<(), String> {
    for name in method.parameters.iter_mut().map(|(name, _)| name).chain(&mut method.output) {
        check_name(name, &format!("`{}`", method.name))?;
        *name = if OWN.contains(&format!(" {name} ")) { format!("{name}_") } else { safe(name) };
    }
    Ok(())
}

/// What C has for the address of a value, which may be what a pointer points to.
fn address(value: &str) -> String {
    value.strip_prefix('*').map_or_else(|| format!("&{value}"), str::to_owned)
}

/// An enum's members by variant, with the variants' tags.
fn by_variant<'m>(variants: &[Variant], members: &'m [Field]) -> impl Iterator<Item = (usize, &'m [Field])> {
    let mut left = members;
    variants.iter().enumerate().map(move |(tag, variant)| {
        let (own, others) = left.split_at(variant.fields.len());
        left = others;
        (tag, own)
    })
}

/// Names of the header, and what each is of: none is that of two things.
type Names = HashMap<String, String>;

struct Writer<'a> {
    out: &'a mut String,
    names: &'a mut Names,
    /// The service's name, before all others.
    prefix: String,
    /// Types that are there.
    known: Vec<Type>,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Notes that a name is that of something.
    fn claim(&mut self, name: &str, what: &str) -> Result<(), String> {
        // Of what C's headers have, a service's and a method's name with a line between them can be `int8_t` or `INT8_MAX`.
        let of_numbers = name.to_lowercase();
        let of_numbers = of_numbers.strip_suffix("_max").or_else(|| of_numbers.strip_suffix("_min"));
        let of_numbers = of_numbers.map_or_else(|| name.to_owned(), |number| format!("{number}_t"));
        if !name.contains(' ') && (is_number(&of_numbers) || LIMITS.contains(&&*of_numbers)) {
            return Err(format!("{what} is `{name}` in C, which has that: rename one"));
        }
        match self.names.insert(name.to_owned(), what.to_owned()) {
            Some(other) if other != what => {
                Err(format!("{other} and {what} are both `{name}` in C: rename one"))
            }
            _ => Ok(()),
        }
    }

    fn service(&mut self, service: &Service) -> Result<(), Wrong> {
        self.line("");
        self.comment(&service.docs, &format!("The service {}.", service.name));
        let mut table = String::new();
        for (at, method) in service.methods.iter().enumerate() {
            let number = service.number + at as u16;
            let check = check_of(method.schema(&service.name));
            let function = format!("{}_{}", self.prefix, snake(&method.name));
            let (name, what) = (function.to_uppercase(), format!("method {}::{}", service.name, method.name));
            self.claim(&name, &what)
                .and_then(|()| self.claim(&function, &what))
                .map_err(|message| method.wrong(message))?;
            self.line(&format!("#define {name} HOSTCALL_METHOD({number}, {check:#x})"));
            let _ = write!(
                table,
                "{}{{{name}, \"{}::{}\"}}",
                if at > 0 { ", " } else { "" },
                service.name,
                method.name
            );
        }
        // Hosts serve no service of hostcall's own.
        if service.number >= number::USER {
            let name = format!("{}_METHODS", self.prefix.to_uppercase());
            self.claim(&name, &format!("the methods of {}", service.name))
                .map_err(|message| service.wrong(message))?;
            self.line("/* For a host in C: between the braces of an array of `hostcall_method`. */");
            self.line(&format!("#define {name} {table}"));
        }
        for method in &service.methods {
            self.method(service, method).map_err(|message| method.wrong(message))?;
        }
        Ok(())
    }

    /// Writes a method's functions, with the types that they take.
    fn method(&mut self, service: &Service, method: &Method) -> Result<(), String> {
        for (_, kind) in &method.parameters {
            if let Kind::Value(of) = kind {
                self.define(of)?;
            }
        }
        self.define(&method.result)?;
        self.call(service, method)?;
        let is_posted = method.result == Type::Unit && method.output.is_none() && method.bytes().is_empty();
        if is_posted && method.argument_words() <= MAX_POST_WORDS {
            self.post(service, method)?;
        }
        Ok(())
    }

    fn comment(&mut self, docs: &[String], otherwise: &str) {
        let text =
            if docs.is_empty() { otherwise.to_owned() } else { docs.join("\n * ").replace(" \n", "\n") };
        self.line(&format!("/* {} */", text.replace("*/", "* /").replace("/*", "/ *")));
    }

    /// The part of a name that says which type it is.
    fn name(&self, of: &Type) -> String {
        match of {
            Type::Unit => "unit".into(),
            Type::Scalar(scalar) => scalar.rust.into(),
            Type::Array(of, count) => format!("array_{count}_{}", self.name(of)),
            Type::Option(of) => format!("option_{}", self.name(of)),
            Type::Result(value, error) => format!("result_{}_{}", self.name(value), self.name(error)),
            Type::Tuple(parts) => parts
                .iter()
                .fold(format!("tuple_{}", parts.len()), |all, part| format!("{all}_{}", self.name(part))),
            Type::Struct(name, _) | Type::Enum(name, _) => snake(name),
        }
    }

    /// The type in C.
    fn c(&self, of: &Type) -> String {
        match of {
            Type::Scalar(scalar) => scalar.c.into(),
            _ => format!("struct {}_{}", self.prefix, self.name(of)),
        }
    }

    /// The members of a type that is a struct in C.
    fn members(&self, of: &Type) -> Vec<Field> {
        let member = |name: &str, of: &Type| Field { name: safe(name), of: of.clone() };
        match of {
            Type::Unit | Type::Scalar(_) | Type::Array(..) => Vec::new(),
            Type::Option(of) => vec![member("value", of)],
            Type::Result(value, error) => vec![member("value", value), member("error", error)],
            Type::Tuple(parts) => {
                parts.iter().enumerate().map(|(at, part)| member(&format!("_{at}"), part)).collect()
            }
            Type::Struct(_, fields) => fields.iter().map(|field| member(&field.name, &field.of)).collect(),
            Type::Enum(_, variants) => {
                let of_variant = variants.iter().flat_map(|variant| {
                    let fields = variant.fields.iter();
                    fields.map(|field| {
                        let of_field = field.name.trim_start_matches('_');
                        let name = match variant.fields.len() {
                            1 if field.name.starts_with('_') => snake(&variant.name),
                            _ => format!("{}_{of_field}", snake(&variant.name)),
                        };
                        let name = if name == "tag" { "tag_".into() } else { safe(&name) };
                        Field { name, of: field.of.clone() }
                    })
                });
                of_variant.collect()
            }
        }
    }

    /// Writes a type with what puts it into words and takes it out of them, if it is not there.
    fn define(&mut self, of: &Type) -> Result<(), String> {
        if self.known.contains(of) || *of == Type::Unit {
            return Ok(());
        }
        self.known.push(of.clone());
        if let Type::Array(of, _) = of {
            self.define(of)?;
        }
        let (name, what) = (format!("{}_{}", self.prefix, self.name(of)), of.to_string());
        self.claim(&format!("struct {name}"), &what)?;
        for kind in ["put", "get"] {
            self.claim(&format!("{}_{kind}_{}_", self.prefix, self.name(of)), &what)?;
        }
        if let Type::Struct(_, fields) = of {
            fields.iter().try_for_each(|field| check_name(&field.name, &what))?;
        }
        let members = self.members(of);
        let mut names = HashSet::new();
        for member in &members {
            if !names.insert(&*member.name) {
                return Err(format!("two parts of {what} are both `{}` in C: rename one", member.name));
            }
            self.define(&member.of)?;
        }
        self.line("");
        if let Type::Enum(name, variants) = of {
            let prefix = format!("{}_{}", self.prefix, snake(name)).to_uppercase();
            let of_variant = |variant: &Variant| format!("{prefix}_{}", snake(&variant.name).to_uppercase());
            let names: Vec<_> = variants.iter().map(of_variant).collect();
            for (name, variant) in names.iter().zip(variants) {
                self.claim(name, &format!("{what}::{}", variant.name))?;
            }
            self.line(&format!("enum {{ {} }};", names.join(", ")));
        }
        self.declare(of);
        self.put(of);
        self.get(of);
        Ok(())
    }

    fn declare(&mut self, of: &Type) {
        let tag = match of {
            Type::Scalar(_) => return,
            Type::Option(_) => "    uint8_t is_some;\n",
            Type::Result(..) => "    uint8_t is_ok;\n",
            Type::Enum(..) => "    uint32_t tag; /* Which of them it is, by the names above. */\n",
            _ => "",
        };
        let mut text = format!("{} {{\n{tag}", self.c(of));
        if let Type::Array(item, count) = of
            && of.words() > 0
        {
            let _ = writeln!(text, "    {} items[{count}];", self.c(item));
        }
        for Field { name, of } in self.members(of).iter().filter(|member| member.of != Type::Unit) {
            let _ = writeln!(text, "    {} {name};", self.c(of));
        }
        // C has no struct without members.
        if of.words() == 0 {
            text += "    uint8_t nothing;\n";
        }
        self.line(&(text + "};\n"));
    }

    /// What puts the value `from` at a word.
    fn put_value(&self, of: &Type, from: &str, at: &str) -> String {
        match of {
            Type::Unit => String::new(),
            Type::Scalar(_) => format!("{}_put_{}_({at}, {from});", self.prefix, self.name(of)),
            _ => format!("{}_put_{}_({at}, {});", self.prefix, self.name(of), address(from)),
        }
    }

    fn get_value(&self, of: &Type, to: &str, at: &str) -> String {
        match of {
            Type::Unit => "1".into(),
            _ => format!("{}_get_{}_({at}, {})", self.prefix, self.name(of), address(to)),
        }
    }

    fn put(&mut self, of: &Type) {
        let (prefix, name, c) = (self.prefix.clone(), self.name(of), self.c(of));
        if let Type::Scalar(scalar) = of {
            let body = match scalar.rust {
                "f32" => "uint32_t bits;\n    hostcall_copy_(&bits, &v, 4);\n    words[0] = bits;".into(),
                "f64" => "hostcall_copy_(words, &v, 8);".into(),
                _ => format!("words[0] = {};", scalar.put),
            };
            return self.line(&format!(
                "HOSTCALL_FUNCTION void {prefix}_put_{name}_(uint64_t *words, {c} v) {{\n    {body}\n}}"
            ));
        }
        let mut text =
            format!("HOSTCALL_FUNCTION void {prefix}_put_{name}_(uint64_t *words, const {c} *v) {{\n");
        let members = self.members(of);
        let parts = |first: usize, members: &[Field]| {
            let mut at = first;
            members.iter().fold(String::new(), |all, Field { name, of }| {
                let put = self.put_value(of, &format!("v->{name}"), &format!("words + {at}"));
                at += of.words();
                if put.is_empty() { all } else { all + "        " + &put + "\n" }
            })
        };
        let zeros = format!("    for (uint32_t i = 0; i < {}; i++)\n        words[i] = 0;\n", of.words());
        text += &match of {
            _ if of.words() == 0 => String::new(),
            Type::Array(item, count) => {
                let put = self.put_value(item, "v->items[i]", &format!("words + {} * i", item.words()));
                format!("    for (uint32_t i = 0; i < {count}; i++)\n        {put}\n")
            }
            Type::Option(_) => {
                format!(
                    "{zeros}    words[0] = v->is_some != 0;\n    if (v->is_some) {{\n{}    }}\n",
                    parts(1, &members)
                )
            }
            Type::Result(..) => format!(
                "{zeros}    words[0] = v->is_ok == 0;\n    if (v->is_ok) {{\n{}    }} else {{\n{}    }}\n",
                parts(1, &members[..1]),
                parts(1, &members[1..])
            ),
            Type::Enum(_, variants) => {
                let case = |(tag, own)| format!("    case {tag}:\n{}        break;\n", parts(1, own));
                let cases: String = by_variant(variants, &members).map(case).collect();
                format!("{zeros}    words[0] = v->tag;\n    switch (v->tag) {{\n{cases}    }}\n")
            }
            _ => format!("    {{\n{}    }}\n", parts(0, &members)),
        };
        if of.words() == 0 {
            text += "    (void)words, (void)v;\n";
        }
        self.line(&(text + "}"));
    }

    fn get(&mut self, of: &Type) {
        let (prefix, name, c) = (self.prefix.clone(), self.name(of), self.c(of));
        let mut text =
            format!("HOSTCALL_FUNCTION int {prefix}_get_{name}_(const uint64_t *words, {c} *v) {{\n");
        if let Type::Scalar(scalar) = of {
            text += &match scalar.rust {
                "f32" => "    uint32_t bits = (uint32_t)words[0];\n    hostcall_copy_(v, &bits, 4);\n    return bits == words[0];\n".into(),
                "f64" => "    hostcall_copy_(v, words, 8);\n    return 1;\n".into(),
                _ => {
                    let again = format!("({})*v == w", if scalar.c.starts_with('i') { "uint64_t)(int64_t" } else { "uint64_t" });
                    format!("    const uint64_t w = words[0];\n    *v = ({c})w;\n    return {again}{};\n", scalar.check)
                }
            };
            return self.line(&(text + "}"));
        }
        let members = self.members(of);
        let parts = |first: usize, members: &[Field]| {
            let mut at = first;
            let parts = members.iter().map(|Field { name, of }| {
                let get = self.get_value(of, &format!("v->{name}"), &format!("words + {at}"));
                at += of.words();
                get
            });
            let parts: Vec<_> = parts.filter(|part| part != "1").collect();
            if parts.is_empty() { "1".to_owned() } else { parts.join(" && ") }
        };
        text += &match of {
            _ if of.words() == 0 => "    return 1;\n".into(),
            Type::Array(item, count) => {
                let get = self.get_value(item, "v->items[i]", &format!("words + {} * i", item.words()));
                format!(
                    "    int is_good = 1;\n    for (uint32_t i = 0; i < {count}; i++)\n        is_good &= {get};\n    return is_good;\n"
                )
            }
            Type::Option(_) => format!(
                "    v->is_some = (uint8_t)words[0];\n    return words[0] == 0 || (words[0] == 1 && {});\n",
                parts(1, &members)
            ),
            Type::Result(..) => format!(
                "    v->is_ok = words[0] == 0;\n    return words[0] == 0 ? {} : words[0] == 1 && {};\n",
                parts(1, &members[..1]),
                parts(1, &members[1..])
            ),
            Type::Enum(_, variants) => {
                let case = |(tag, own)| format!("    case {tag}:\n        return {};\n", parts(1, own));
                let cases: String = by_variant(variants, &members).map(case).collect();
                format!(
                    "    v->tag = (uint32_t)words[0];\n    switch (words[0]) {{\n{cases}    }}\n    return 0;\n"
                )
            }
            _ => format!("    return {};\n", parts(0, &members)),
        };
        if of.words() == 0 {
            text = text.replace("    return", "    (void)words, (void)v;\n    return");
        }
        self.line(&(text + "}"));
    }

    /// The function's name, and what it takes of the arguments.
    fn takes(&self, method: &Method) -> Result<String, String> {
        let mut takes = String::from("uint64_t context");
        let with_count = |name: &String| [name.clone(), format!("{name}_count")];
        let all = method.parameters.iter().flat_map(|(name, kind)| match kind {
            Kind::Value(_) => vec![name.clone()],
            Kind::Bytes { .. } => with_count(name).to_vec(),
        });
        let mut all: Vec<_> = all.chain(method.output.iter().flat_map(with_count)).collect();
        all.sort_unstable();
        if let Some([name, _]) = all.array_windows().find(|[one, other]| one == other) {
            return Err(format!("two parameters of `{}` are both `{name}` in C: rename one", method.name));
        }
        for (name, kind) in &method.parameters {
            let _ = match kind {
                Kind::Value(Type::Unit) => Ok(()),
                Kind::Value(of @ Type::Scalar(_)) => write!(takes, ", {} {name}", self.c(of)),
                Kind::Value(of) => write!(takes, ", const {} *{name}", self.c(of)),
                Kind::Bytes { .. } => write!(takes, ", const void *{name}, uint64_t {name}_count"),
            };
        }
        Ok(takes)
    }

    /// What puts the arguments into `words_`.
    fn puts(&self, method: &Method) -> String {
        let (mut text, mut at) = (format!("    uint64_t words_[{}];\n", method.argument_words().max(1)), 0);
        for (name, kind) in &method.parameters {
            match kind {
                Kind::Value(of) => {
                    let value = if let Type::Scalar(_) = of { name.clone() } else { format!("*{name}") };
                    let put = self.put_value(of, &value, &format!("words_ + {at}"));
                    if !put.is_empty() {
                        let _ = writeln!(text, "    {put}");
                    }
                    at += of.words();
                }
                Kind::Bytes { .. } => {
                    let _ = writeln!(text, "    words_[{at}] = {name}_count;");
                    at += 1;
                }
            }
        }
        if at == 0 {
            text += "    words_[0] = 0;\n";
        }
        text
    }

    fn call(&mut self, service: &Service, method: &Method) -> Result<(), String> {
        let (words, results) = (method.argument_words(), method.result.words());
        let mut takes = self.takes(method)?;
        if let Some(output) = &method.output {
            let _ = write!(takes, ", void *{output}, uint64_t *{output}_count");
        }
        if method.result != Type::Unit {
            let _ = write!(takes, ", {} *result", self.c(&method.result));
        }
        let name = format!("{}_{}", self.prefix, snake(&method.name));
        let mut text = format!("HOSTCALL_FUNCTION uint64_t {name}({takes}, uint32_t timeout_us) {{\n");
        text += &self.puts(method);
        let _ = writeln!(text, "    uint64_t results_[{}];", results.max(1));
        let bytes = method.bytes();
        let method_name = name.to_uppercase();
        if bytes.is_empty() && method.output.is_none() && words.max(results) <= MAX_WORDS {
            let _ = writeln!(
                text,
                "    uint64_t status_ = hostcall_call_words(context, {method_name}, words_, {words}, results_, {results}, timeout_us);"
            );
        } else {
            let of = |at: usize| {
                let none = || ("0".to_owned(), "0".to_owned());
                bytes.get(at).map_or_else(none, |name| (name.to_string(), format!("{name}_count")))
            };
            let ((first, count), (more, more_count)) = (of(0), of(1));
            let of_output = |name: &String| (name.clone(), format!("*{name}_count"));
            let (reply, capacity) = method.output.as_ref().map_or(("0".into(), "0".into()), of_output);
            let _ = writeln!(
                text,
                "    struct hostcall_bytes call_ = {{words_, {words}, {results}, {first}, {count}, results_, {reply}, {capacity}, 0, {more}, {more_count}}};\n    \
                 uint64_t status_ = hostcall_call_bytes(context, {method_name}, &call_, timeout_us);"
            );
            if let Some(output) = &method.output {
                let filled = "status_ == HOSTCALL_CALL_OK ? call_.filled : 0";
                let _ = writeln!(text, "    *{output}_count = {filled};");
            }
        }
        if method.result != Type::Unit {
            let get = self.get_value(&method.result, "*result", "results_");
            let _ = writeln!(
                text,
                "    if (status_ == HOSTCALL_CALL_OK && !{get})\n        status_ = HOSTCALL_CALL_MALFORMED;"
            );
        }
        self.line("");
        self.comment(&method.docs, &format!("{}::{}", service.name, method.name));
        self.line(&(text + "    return status_;\n}"));
        Ok(())
    }

    fn post(&mut self, service: &Service, method: &Method) -> Result<(), String> {
        let name = format!("{}_post_{}", self.prefix, snake(&method.name));
        self.claim(&name, &format!("the post of {}::{}", service.name, method.name))?;
        let of = format!("{}_{}", self.prefix, snake(&method.name)).to_uppercase();
        let (takes, puts, words) = (self.takes(method)?, self.puts(method), method.argument_words());
        self.line(&format!(
            "\n/* Posts {}::{}: nobody waits for it. Returns whether it is on its way. */\n\
             HOSTCALL_FUNCTION int {name}({takes}) {{\n{puts}    return hostcall_post_words(context, {of}, words_, {words});\n}}",
            service.name, method.name
        ));
        Ok(())
    }
}
