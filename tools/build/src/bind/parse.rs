//! Reading services and the types that they name.

use super::types::{Field, Kind, Method, SCALARS, Service, Type, Variant};
use hostcall_abi::schema;
use hostcall_abi::service::{derived_number, number};
use hostcall_abi::word::MAX_TYPED_WORDS;
use std::cell::Cell;
use std::collections::HashSet;
use syn::ext::IdentExt;
use syn::{
    Attribute, BinOp, Error, Expr, ExprLit, Fields, File, FnArg, GenericArgument, Item, ItemTrait, Lit, Meta,
    Pat, PathArguments, Result, ReturnType, Safety, TraitItem,
};

/// Returns the services of a file, or the one of this name.
pub(super) fn services(file: &File, wanted: Option<&str>) -> Result<Vec<Service>> {
    let mut services: Vec<Service> = Vec::new();
    for item in &file.items {
        let Item::Trait(item) = item else { continue };
        let Some(attribute) = item.attrs.iter().find(|attribute| is(attribute, "service")) else { continue };
        if wanted.is_none_or(|name| item.ident == name) {
            let service = service(file, item, attribute)?;
            if services.iter().any(|other| other.name == service.name) {
                let message = format!("two services are called `{}`: rename one", service.name);
                return Err(Error::new_spanned(&item.ident, message));
            }
            if let Some(other) = services.iter().find(|other| has_number_of(&service, other)) {
                let message = format!(
                    "methods of `{}` have numbers that methods of `{}` have, which are {} to {}: take others",
                    service.name,
                    other.name,
                    other.number,
                    other.last_number()
                );
                return Err(Error::new_spanned(&item.ident, message));
            }
            services.push(service);
        }
    }
    if services.is_empty() {
        let name = wanted.map(|name| format!(" `{name}`")).unwrap_or_default();
        let message = format!(
            "no service{name} is in the file: write a trait with #[service], or [service.NAME] in a file `.toml`"
        );
        return Err(Error::new(proc_macro2::Span::call_site(), message));
    }
    Ok(services)
}

/// Whether a number is that of methods of both: a host that serves both would take one's calls for the other's.
fn has_number_of(one: &Service, other: &Service) -> bool {
    one.number <= other.last_number() && other.number <= one.last_number()
}

/// Whether the last part of an attribute's path is this.
fn is(attribute: &Attribute, name: &str) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == name)
}

fn docs(attributes: &[Attribute]) -> Vec<String> {
    let texts = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    texts.flat_map(|text| text.trim().lines().map(plain).collect::<Vec<_>>()).collect()
}

/// A line without what ends one, or a comment, where another language reads it: Python goes on after a lone carriage return.
pub(super) fn plain(line: &str) -> String {
    // Also what has a line look otherwise than it is, by its direction.
    let is_control = |letter: char| {
        letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    line.replace(is_control, " ").trim_end().to_owned()
}

/// Most methods of a service.
const MOST_METHODS: usize = 16;

/// Last number of a service whose number comes from its name.
const LAST: u16 = u16::MAX - 15;

/// Most structs and enums that types of a service name, and these in turn.
const MOST_NAMED: usize = 10_000;

/// Where types are looked for.
#[derive(Clone, Copy)]
struct Scope<'a> {
    file: &'a File,
    depth: usize,
    /// How many were found.
    named: &'a Cell<usize>,
}

fn service(file: &File, item: &ItemTrait, attribute: &Attribute) -> Result<Service> {
    let named = Cell::new(0);
    let scope = Scope { file, depth: 0, named: &named };
    let name = item.ident.unraw().to_string();
    let mut number = derived_number(schema::of(&name));
    let (mut is_own, mut is_chosen) = (false, false);
    if let Meta::List(_) = &attribute.meta {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("internal") || meta.path.is_ident("rare") {
                return Ok(());
            }
            if !meta.path.is_ident("number") {
                // What names Rust's crates is nothing to C.
                return meta.value().and_then(|value| value.parse::<Expr>()).map(drop);
            }
            let expression = meta.value()?.parse::<Expr>()?;
            is_own = own_number(&expression).is_some();
            is_chosen = !is_own;
            number = match (own_number(&expression), &expression) {
                (Some(number), _) => number,
                (None, Expr::Lit(ExprLit { lit: Lit::Int(literal), .. })) => literal.base10_parse()?,
                (None, other) => {
                    return Err(Error::new_spanned(
                        other,
                        "write the service's number as digits: no constant is looked up",
                    ));
                }
            };
            Ok(())
        })?;
    }
    let methods = item.items.iter().map(|item| method(scope, item)).collect::<Result<Vec<_>>>()?;
    if methods.is_empty() {
        return Err(Error::new_spanned(
            &item.ident,
            format!("the service `{name}` has no method: write one"),
        ));
    }
    let mut names = HashSet::new();
    if let Some(method) = methods.iter().find(|method| !names.insert(&*method.name)) {
        let message = format!("two methods of `{name}` are called `{}`: rename one", method.name);
        return Err(Error::new_spanned(&item.ident, message));
    }
    if methods.len() > MOST_METHODS {
        return Err(Error::new_spanned(&item.ident, "a service has 16 methods at most"));
    }
    let numbers = number::USER..=number::DERIVED - methods.len() as u16;
    if is_chosen && !numbers.contains(&number) || number > LAST {
        return Err(Error::new_spanned(
            &item.ident,
            "a service's number, and those of its methods, are 256 to 32767",
        ));
    }
    Ok(Service { name, line: item.ident.span().start().line, docs: docs(&item.attrs), number, methods })
}

/// The number of a service that comes with hostcall, whose trait names a constant of [`number`].
fn own_number(expression: &Expr) -> Option<u16> {
    match expression {
        Expr::Path(path) => Some(match &*path.path.segments.last()?.ident.to_string() {
            "HEAP" => number::HEAP,
            "FILES" => number::FILES,
            "ENVIRONMENT" => number::ENVIRONMENT,
            "CLOCK" => number::CLOCK,
            _ => return None,
        }),
        Expr::Binary(sum) => match (&sum.op, &*sum.right) {
            (BinOp::Add(_), Expr::Lit(ExprLit { lit: Lit::Int(more), .. })) => {
                own_number(&sum.left)?.checked_add(more.base10_parse().ok()?)
            }
            _ => None,
        },
        _ => None,
    }
}

fn method(scope: Scope<'_>, item: &TraitItem) -> Result<Method> {
    let TraitItem::Fn(function) = item else {
        return Err(Error::new_spanned(item, "a service has methods only"));
    };
    let (mut parameters, mut output) = (Vec::new(), None);
    for input in &function.sig.inputs {
        // As the macro has it.
        if output.is_some() {
            return Err(Error::new_spanned(
                input,
                "the bytes that a method gives back (`&mut [u8]`, or \"bytes out\") are its last argument, and only one",
            ));
        }
        let FnArg::Typed(typed) = input else {
            return Err(Error::new_spanned(input, "a service's method has no `self`"));
        };
        let Pat::Ident(name) = &*typed.pat else {
            return Err(Error::new_spanned(&typed.pat, "a parameter has a name alone"));
        };
        let name = name.ident.unraw().to_string();
        let syn::Type::Reference(reference) = &*typed.ty else {
            parameters.push((name, Kind::Value(type_of(scope, &typed.ty)?)));
            continue;
        };
        let is_bytes = matches!(&*reference.elem, syn::Type::Slice(slice) if is_named(&slice.elem, "u8"));
        match (&*reference.elem, reference.mutability) {
            (elem, None) if is_named(elem, "Caller") => {}
            (elem, None) if is_named(elem, "str") => {
                parameters.push((name, Kind::Bytes { schema: schema::of("&str") }));
            }
            (_, None) if is_bytes => parameters.push((name, Kind::Bytes { schema: schema::of("&[u8]") })),
            (_, Some(_)) if is_bytes => output = Some(name),
            _ => return Err(Error::new_spanned(reference, "no parameter of a service is such a reference")),
        }
    }
    let result = match &function.sig.output {
        ReturnType::Default => Type::Unit,
        ReturnType::Type(_, of) => type_of(scope, of)?,
    };
    let is_unsafe = matches!(function.sig.safety, Safety::Unsafe(_));
    let method = Method {
        name: function.sig.ident.unraw().to_string(),
        line: function.sig.ident.span().start().line,
        docs: docs(&function.attrs),
        parameters,
        output,
        result,
        is_unsafe,
    };
    if method.argument_words().max(method.result.words()) > MAX_TYPED_WORDS {
        return Err(Error::new_spanned(&function.sig, "a call has 64 words at most each way"));
    }
    if method.bytes().len() > 2 {
        let message = "a function of C passes two texts or slices at most: join some of them";
        return Err(Error::new_spanned(&function.sig, message));
    }
    Ok(method)
}

fn is_named(of: &syn::Type, name: &str) -> bool {
    matches!(of, syn::Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

fn type_of(scope: Scope<'_>, of: &syn::Type) -> Result<Type> {
    match of {
        syn::Type::Paren(paren) => type_of(scope, &paren.elem),
        syn::Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(Type::Unit),
        syn::Type::Tuple(tuple) => {
            Ok(Type::Tuple(tuple.elems.iter().map(|elem| type_of(scope, elem)).collect::<Result<_>>()?))
        }
        syn::Type::Array(array) => {
            let Expr::Lit(ExprLit { lit: Lit::Int(count), .. }) = &array.len else {
                return Err(Error::new_spanned(&array.len, "write the array's length as digits"));
            };
            Ok(Type::Array(Box::new(type_of(scope, &array.elem)?), count.base10_parse()?))
        }
        syn::Type::Path(path) => {
            let last = path.path.segments.last().expect("a path has parts");
            let arguments: Vec<_> = match &last.arguments {
                PathArguments::AngleBracketed(arguments) => {
                    let types = arguments.args.iter().filter_map(|argument| match argument {
                        GenericArgument::Type(of) => Some(type_of(scope, of)),
                        _ => None,
                    });
                    types.collect::<Result<_>>()?
                }
                _ => Vec::new(),
            };
            let name = last.ident.unraw().to_string();
            match (&*name, <[Type; 1]>::try_from(arguments)) {
                ("Option", Ok([of])) => Ok(Type::Option(Box::new(of))),
                ("Result", Err(arguments)) if arguments.len() == 2 => {
                    let [value, error] = <[Type; 2]>::try_from(arguments).unwrap_or_else(|_| unreachable!());
                    Ok(Type::Result(Box::new(value), Box::new(error)))
                }
                (_, Err(arguments)) if arguments.is_empty() => named(scope, of, &name),
                _ => Err(Error::new_spanned(
                    of,
                    "C has no name for this generic type: use a struct of the file",
                )),
            }
        }
        _ => Err(Error::new_spanned(of, "this type does not travel in a call")),
    }
}

/// Structs in structs. A type that has itself within does not end.
const MOST_DEPTH: usize = 16;

fn named(scope: Scope<'_>, of: &syn::Type, name: &str) -> Result<Type> {
    if let Some(scalar) = SCALARS.iter().find(|scalar| scalar.rust == name) {
        return Ok(Type::Scalar(scalar));
    }
    scope.named.set(scope.named.get() + 1);
    if scope.depth == MOST_DEPTH || scope.named.get() > MOST_NAMED {
        return Err(Error::new_spanned(of, format!("`{name}` has itself within, or lies too deep")));
    }
    let inner = Scope { depth: scope.depth + 1, ..scope };
    for item in &scope.file.items {
        match item {
            Item::Struct(item) if item.ident == name => {
                return Ok(Type::Struct(name.into(), fields(inner, &item.fields)?));
            }
            Item::Enum(item) if item.ident == name => {
                if item.variants.is_empty() {
                    return Err(Error::new_spanned(item, "an enum without variants has no value to send"));
                }
                let variants = item.variants.iter().map(|variant| {
                    Ok(Variant {
                        name: variant.ident.unraw().to_string(),
                        fields: fields(inner, &variant.fields)?,
                    })
                });
                return Ok(Type::Enum(name.into(), variants.collect::<Result<_>>()?));
            }
            _ => {}
        }
    }
    Err(Error::new_spanned(
        of,
        format!("`{name}` is not in this file: put its struct or enum beside the service"),
    ))
}

fn fields(scope: Scope<'_>, fields: &Fields) -> Result<Vec<Field>> {
    let named = |(at, field): (usize, &syn::Field)| {
        let name = field.ident.as_ref().map_or_else(|| format!("_{at}"), |ident| ident.unraw().to_string());
        Ok(Field { name, of: type_of(scope, &field.ty)? })
    };
    fields.iter().enumerate().map(named).collect()
}
