//! The module for hosts in Python.

use super::types::{Kind, Method, Service, Type, Wrong};
use hostcall_abi::schema;
use std::collections::HashSet;
use std::fmt::Write;

/// Words that Python and the module have taken.
const TAKEN: &str = " False None True __debug__ and as assert async await break class continue def del elif else except finally for from \
    global hostcall if import in is lambda nonlocal not or pass raise return self try while with yield ";

/// Names that annotations have. In a class, or before one, another thing of this name would be meant by them.
const ANNOTATIONS: [&str; 6] = ["bool", "bytes", "float", "int", "str", "tuple"];

fn is_taken(name: &str) -> bool {
    TAKEN.contains(&format!(" {name} "))
}

/// Returns the module of services that a file of this name has, or why Python cannot say it.
pub(super) fn module(services: &[Service], file: &str) -> Result<String, Wrong> {
    let mut out = format!(
        "# Made by `hostcall bind --python` of {file}: make it anew where the service changes.\n\
         # A host serves an object of a class that is derived from one of these and has its methods.\nimport hostcall\n"
    );
    for service in services {
        let name = public(&service.name, "service").map_err(|message| service.wrong(message))?;
        let _ = write!(out, "\n\n@hostcall.service(number={}, typed=True)\nclass {name}:\n", service.number);
        comment(&mut out, &service.docs);
        for method in &service.methods {
            self::method(&mut out, service, method).map_err(|message| method.wrong(message))?;
        }
    }
    Ok(out)
}

fn comment(out: &mut String, docs: &[String]) {
    for line in docs {
        let _ = writeln!(out, "    # {line}");
    }
}

/// A name that is hashed, and so stays as it is.
fn public<'n>(name: &'n str, what: &str) -> Result<&'n str, String> {
    if is_taken(name) || ANNOTATIONS.contains(&name) || name.starts_with('_') {
        return Err(format!("a {what} cannot be called `{name}` in Python: rename it"));
    }
    Ok(name)
}

fn method(out: &mut String, service: &Service, method: &Method) -> Result<(), String> {
    let full = format!("{}::{}", service.name, method.name);
    let in_method = |why: String| format!("{full} cannot be a function of Python's: {why}");
    if method.is_unsafe {
        return Err(in_method("it is unsafe".into()));
    }
    let (mut takes, mut names) = (String::from("self"), HashSet::new());
    for (name, kind) in &method.parameters {
        let of = match kind {
            Kind::Value(of) => word(of).map_err(in_method)?,
            Kind::Bytes { schema } if *schema == schema::of("&str") => "str".into(),
            Kind::Bytes { .. } => "bytes".into(),
        };
        let name = format!("{name}{}", if is_taken(name) { "_" } else { "" });
        let _ = write!(takes, ", {name}: {of}");
        if !names.insert(name.clone()) {
            return Err(format!("two arguments of {full} are both `{name}` in Python: rename one"));
        }
    }
    let mut gives = match &method.result {
        Type::Unit => Vec::new(),
        Type::Tuple(parts) if parts.len() > 1 => {
            parts.iter().map(word).collect::<Result<Vec<_>, _>>().map_err(in_method)?
        }
        of => vec![word(of).map_err(in_method)?],
    };
    gives.extend(method.output.iter().map(|_| "bytes".into()));
    let gives = match &gives[..] {
        [] => "None".into(),
        [one] => one.clone(),
        all => format!("tuple[{}]", all.join(", ")),
    };
    let name = public(&method.name, "method")?;
    out.push('\n');
    comment(out, &method.docs);
    let _ = writeln!(out, "    def {name}({takes}) -> {gives}:\n        raise NotImplementedError");
    Ok(())
}

/// Returns the annotation of a word.
fn word(of: &Type) -> Result<String, String> {
    match of {
        Type::Scalar(scalar) if scalar.rust == "bool" => Ok("bool".into()),
        Type::Scalar(scalar) if !["usize", "isize", "char"].contains(&scalar.rust) => {
            Ok(format!("hostcall.{}", scalar.rust))
        }
        other => {
            Err(format!("it has `{other}`, and Python u8 to u64, i8 to i64, f32, f64, bool, str and bytes"))
        }
    }
}
