//! `#[service]`.

mod device;
mod host;

use crate::kernel::peel;
use crate::names::{Names, crate_option, shadows};
use crate::options::Options;
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use std::collections::HashMap;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, Generics, Ident, ItemTrait, Meta, Pat, PatIdent, Result, ReturnType, Safety,
    Token, TraitItem, TraitItemFn, Type, parse_quote,
};

/// Most methods of a service: derived numbers leave room for so many.
const MAX_METHODS: usize = 16;

/// Associated items of the generated struct that are no methods of the service.
const RESERVED: [&str; 5] = ["serve", "serve_async", "serve_gathered", "within_us", "METHODS"];

const NAME_THE_TYPE: &str = "name the type: kernel and host agree on how it travels";

/// Attributes that set lints' levels.
const LINTS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// The tools whose attributes the compiler leaves to them. Another path is an attribute macro's.
const TOOLS: [&str; 5] = ["clippy", "diagnostic", "miri", "rust_analyzer", "rustfmt"];

enum ParameterKind {
    Value(Box<Type>),
    Str,
    Bytes,
}

struct Parameter {
    name: Ident,
    kind: ParameterKind,
}

struct Method {
    docs: Vec<Attribute>,
    name: Ident,
    /// The `&Caller` at the beginning: the handler gets it, and the device does not pass it.
    caller: Option<Ident>,
    /// All parameters but the caller and the output.
    parameters: Vec<Parameter>,
    /// The `&mut [u8]` at the end.
    output: Option<Ident>,
    result: TokenStream,
    has_result: bool,
    /// Whether the device's functions are unsafe to call.
    is_unsafe: bool,
}

pub fn service(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut options = Options::parse(options)?;
    let krate = crate_option(&mut options)?;
    let item: ItemTrait = syn::parse2(item)?;
    let number = options.value("number")?;
    // Services that come with hostcall, and those whose methods a lane calls hardly ever.
    let (internal, rare) = (options.flag("internal")?, options.flag("rare")?);
    options.finish("`number` and `crate`")?;
    check_trait(&item)?;
    let names = Names::new(&quote!(#item), krate)?;
    let methods = item.items.iter().map(Method::parse).collect::<Result<Vec<_>>>()?;
    if methods.len() > MAX_METHODS {
        return Err(Error::new_spanned(&item.ident, "a service has 16 methods at most: make two services"));
    }
    check_functions(&methods)?;

    let k = &names.private;
    let name = &item.ident;
    let text = name.unraw().to_string();
    let count = methods.len();
    let base = names.fresh("base");
    let base_value = match &number {
        None => quote!(#k::derived_number(#k::schema::of(#text))),
        Some(number) => quote!(#number),
    };
    let check = match &number {
        Some(number) if !internal => {
            let message = "a service's number, and those of its methods, are 256 to 32767";
            quote_spanned! {number.span()=>
                const _: () = ::core::assert!(
                    #base >= #k::number::USER && #base + (#count as #k::u16) <= #k::number::DERIVED,
                    #message
                );
            }
        }
        _ => quote!(),
    };
    let table =
        methods.iter().enumerate().map(|(index, method)| method.table_entry(&names, &base, &text, index));
    let words = methods.iter().map(|method| method.check_words(&names, &text));
    let builtin = internal.then(|| if rare { quote!(#k::builtin::rare) } else { quote!(#k::builtin) });
    let device = device::side(&names, &item, &methods, builtin.as_ref());
    let host = host::side(&names, &item, &methods);
    let (visibility, attributes, allowed) = (&item.vis, &item.attrs, allowed(&item));
    Ok(quote! {
        #(#attributes)*
        #[derive(#k::Clone, #k::Copy, #k::Debug)]
        #visibility struct #name;

        #allowed
        #[allow(non_upper_case_globals, reason = "names that no user's name meets")]
        const _: () = {
            const #base: #k::u16 = #base_value;
            #check
            #(#words)*
            impl #name {
                /// The service's methods, in the trait's order.
                pub const METHODS: &'static [#k::Method; #count] = &[#(#table),*];
            }
        };
        #device
        #host
    })
}

/// Refuses methods of the same name, also those of generated functions: `a` has `start_a` beside a method
/// `start_a`.
fn check_functions(methods: &[Method]) -> Result<()> {
    let mut functions = HashMap::new();
    for method in methods {
        if functions.insert(method.name.unraw().to_string(), &method.name).is_some() {
            return Err(Error::new_spanned(
                &method.name,
                "another method has this name: give this one its own",
            ));
        }
    }
    for method in methods.iter().filter(|method| method.words_only()) {
        let name = method.name.unraw();
        for (prefix, what, made) in [("start_", "starts", true), ("post_", "posts", !method.has_result)] {
            if let Some(other) = functions.get(&format!("{prefix}{name}")).filter(|_| made) {
                let message = format!(
                    "the function that {what} `{name}` is called `{prefix}{name}`: give this method another name"
                );
                return Err(Error::new_spanned(other, message));
            }
        }
    }
    Ok(())
}

/// The attributes of a method or of a parameter that the generated functions have: its documentation. What is said
/// to lints and tools is said of nothing that has any of it. Others are refused: there are several functions of a
/// method, so that none is the one that they say something of.
fn documentation(attributes: &[Attribute]) -> Result<Vec<Attribute>> {
    let metas = documentation_of(attributes.iter().map(|attribute| &attribute.meta))?;
    Ok(metas.into_iter().map(|meta| parse_quote!(#[#meta])).collect())
}

fn documentation_of<'a>(metas: impl IntoIterator<Item = &'a Meta>) -> Result<Vec<Meta>> {
    let mut documentation = Vec::new();
    for meta in metas {
        let path = meta.path();
        let is = |names: &[&str]| names.iter().any(|name| path.is_ident(name));
        let tool = path.segments.first().filter(|_| path.segments.len() > 1);
        if is(&["doc"]) {
            documentation.push(meta.clone());
        } else if is(&["cfg_attr"]) {
            // It is as good as what it stands for.
            let (condition, metas) = meta.require_list()?.parse_args_with(conditional)?;
            let metas = documentation_of(&metas)?;
            if !metas.is_empty() {
                documentation.push(parse_quote!(cfg_attr(#condition, #(#metas),*)));
            }
        } else if is(&["cfg"]) {
            let message = "kernels and hosts number a service's methods alike, so that none is left out by `#[cfg]`: \
                           make a service of its own of those";
            return Err(Error::new_spanned(meta, message));
        } else if !is(&LINTS) && !tool.is_some_and(|tool| TOOLS.iter().any(|name| tool.ident == name)) {
            let message = "a service's methods and parameters have documentation and what lints and tools are \
                           told, and no other attributes";
            return Err(Error::new_spanned(meta, message));
        }
    }
    Ok(documentation)
}

/// What is in the parentheses of a `cfg_attr`.
fn conditional(input: ParseStream<'_>) -> Result<(syn::Expr, Punctuated<Meta, Token![,]>)> {
    let condition = input.parse()?;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok((condition, Punctuated::parse_terminated(input)?))
}

/// What the trait allows, for all that is made of it.
fn allowed(item: &ItemTrait) -> TokenStream {
    let has = |name| item.attrs.iter().filter(move |attribute: &&Attribute| attribute.path().is_ident(name));
    let (allows, deprecated) = (has("allow"), has("deprecated").map(|_| quote!(#[allow(deprecated)])));
    quote!(#(#allows)* #(#deprecated)*)
}

fn check_trait(item: &ItemTrait) -> Result<()> {
    if let Some(attribute) = item.attrs.iter().find(|attribute| attribute.path().is_ident("cfg")) {
        let message = "write `#[cfg]` above `#[service]`: below it, it would not hold for all that is made of the trait";
        return Err(Error::new_spanned(attribute, message));
    }
    refuse_generics(&item.generics, "a service cannot be generic: its types are fixed")?;
    if let Some(token) = &item.unsafety {
        let message =
            "leave `unsafe` away here: a method can be an `unsafe fn`, which is unsafe to call in a kernel";
        return Err(Error::new_spanned(token, message));
    }
    if !item.supertraits.is_empty() {
        return Err(Error::new_spanned(&item.supertraits, "a service has no supertraits"));
    }
    if item.items.is_empty() {
        return Err(Error::new_spanned(&item.ident, "a service needs at least one method"));
    }
    Ok(())
}

fn refuse_generics(generics: &Generics, message: &str) -> Result<()> {
    let (parameters, bounds) = (&generics.params, &generics.where_clause);
    let tokens = quote!(#parameters #bounds);
    if tokens.is_empty() { Ok(()) } else { Err(Error::new_spanned(tokens, message)) }
}

impl Method {
    fn parse(item: &TraitItem) -> Result<Self> {
        let TraitItem::Fn(TraitItemFn { attrs, sig, default, .. }) = item else {
            return Err(Error::new_spanned(item, "a service has methods only"));
        };
        if let Some(body) = default {
            return Err(Error::new_spanned(body, "the handler on the host has the body: end with `;`"));
        }
        refuse_generics(&sig.generics, "a service's method cannot be generic: its types are fixed")?;
        if let Some(token) = &sig.abi {
            return Err(Error::new_spanned(token, "leave the ABI away: a call is a message to the host"));
        }
        if let Some(token) = &sig.asyncness {
            let message = "leave `async` away: `serve_async` takes async handlers";
            return Err(Error::new_spanned(token, message));
        }
        if let Some(token) = &sig.constness {
            return Err(Error::new_spanned(token, "a call is no constant: leave `const` away"));
        }
        if RESERVED.iter().any(|reserved| sig.ident.unraw() == reserved) {
            return Err(Error::new_spanned(&sig.ident, "the generated struct has a function of this name"));
        }
        let mut parameters = Vec::new();
        let (mut caller, mut output) = (None, None);
        for input in &sig.inputs {
            if let Some(_after) = &output {
                return Err(Error::new_spanned(
                    input,
                    "`&mut [u8]` must be the last parameter, and only one",
                ));
            }
            let FnArg::Typed(typed) = input else {
                let message = "a service's method has no `self`: the device calls it by the service's name";
                return Err(Error::new_spanned(input, message));
            };
            // No function's parameter can have documentation: it is for readers of the trait.
            documentation(&typed.attrs)?;
            let name = match &*typed.pat {
                Pat::Ident(PatIdent { ident, by_ref: None, mutability: None, subpat: None, .. }) => {
                    ident.clone()
                }
                pattern => {
                    let message = "a parameter has a name alone: the handler and the kernel take it apart";
                    return Err(Error::new_spanned(pattern, message));
                }
            };
            if is_caller(&typed.ty) {
                if caller.is_some() || !parameters.is_empty() {
                    return Err(Error::new_spanned(input, "`&Caller` is the first parameter, and only one"));
                }
                caller = Some(name);
                continue;
            }
            match parameter_kind(&typed.ty)? {
                Some(kind) => parameters.push(Parameter { name, kind }),
                None => output = Some(name),
            }
        }
        if parameters.len() > 12 {
            return Err(Error::new_spanned(
                &sig.inputs,
                "a method has 12 parameters at most: put them in a struct",
            ));
        }
        let (result, has_result) = match &sig.output {
            ReturnType::Default => (quote!(()), false),
            ReturnType::Type(_, ty) => match peel(ty) {
                Type::Reference(reference) => {
                    let message =
                        "a result is a `Wire` value; bytes come back through a last `&mut [u8]` parameter";
                    return Err(Error::new_spanned(reference, message));
                }
                Type::ImplTrait(of) => return Err(Error::new_spanned(of, NAME_THE_TYPE)),
                Type::Tuple(tuple) if tuple.elems.is_empty() => (quote!(()), false),
                ty => (quote!(#ty), true),
            },
        };
        let docs = documentation(attrs)?;
        let is_unsafe = matches!(sig.safety, Safety::Unsafe(_));
        Ok(Self { docs, name: sig.ident.clone(), caller, parameters, output, result, has_result, is_unsafe })
    }

    /// Whether the method's values travel as words alone.
    fn words_only(&self) -> bool {
        let values = self.parameters.iter().all(|p| matches!(p.kind, ParameterKind::Value(_)));
        values && self.output.is_none()
    }

    /// Functions with the names of the parameters and of these variables; see [`shadows`].
    fn shadows(names: &Names, methods: &[Self], variables: &[&Ident]) -> TokenStream {
        let parameters = methods.iter().flat_map(|method| {
            let inputs = method.parameters.iter().map(|parameter| &parameter.name);
            method.caller.iter().chain(inputs).chain(&method.output)
        });
        // The parameter of `within_us`.
        let timeout = format_ident!("timeout_us");
        shadows(&names.private, parameters.chain([&timeout]).chain(variables.iter().copied()))
    }

    /// The tuple type of the argument words: values, and for slices their lengths.
    fn arguments(&self, names: &Names) -> TokenStream {
        let k = &names.private;
        let types = self.parameters.iter().map(|parameter| match &parameter.kind {
            ParameterKind::Value(ty) => quote!(#ty),
            ParameterKind::Str | ParameterKind::Bytes => quote!(#k::u32),
        });
        quote!((#(#types,)*))
    }

    fn names(&self) -> Vec<&Ident> {
        self.parameters.iter().map(|parameter| &parameter.name).collect()
    }

    /// Refuses values that are more words than a call has.
    fn check_words(&self, names: &Names, service: &str) -> TokenStream {
        let k = &names.private;
        let (full_name, result) = (format!("{service}::{}", self.name.unraw()), &self.result);
        let parameters = self.parameters.iter().map(|parameter| match &parameter.kind {
            ParameterKind::Value(ty) => quote_spanned!(ty.span()=> <#ty as #k::Wire>::WORDS),
            ParameterKind::Str | ParameterKind::Bytes => quote!(1),
        });
        quote_spanned! {self.name.span()=>
            const _: () = #k::check_words(#full_name, &[#(#parameters),*], <#result as #k::Wire>::WORDS);
        }
    }

    fn table_entry(&self, names: &Names, base: &Ident, service: &str, index: usize) -> TokenStream {
        let k = &names.private;
        let full_name = format!("{service}::{}", self.name.unraw());
        let (result, is_unsafe) = (&self.result, self.is_unsafe);
        let (index, output) = (index as u16, self.output.iter());
        let parameters = self.parameters.iter().map(|parameter| match &parameter.kind {
            ParameterKind::Value(ty) => quote_spanned!(ty.span()=> <#ty as #k::Wire>::SCHEMA),
            ParameterKind::Str => quote!(#k::schema::of("&str")),
            ParameterKind::Bytes => quote!(#k::schema::of("&[u8]")),
        });
        let output = output.map(|_| quote!(#k::schema::of("&mut [u8]")));
        quote! {
            // SAFETY: the handler trusts its callers if, and only if, the trait's method is unsafe.
            unsafe {
                #k::Method::described(
                    #full_name,
                    #base + #index,
                    #k::schema::of_method(
                        #full_name,
                        &[#(#parameters,)* #(#output,)*],
                        <#result as #k::Wire>::SCHEMA,
                        #is_unsafe,
                    ),
                    #is_unsafe,
                )
            }
        }
    }
}

/// Whether a parameter is the handler's `&Caller`. The type needs no import here: the expansion names it.
fn is_caller(ty: &Type) -> bool {
    let Type::Reference(reference) = peel(ty) else { return false };
    let Type::Path(path) = peel(&reference.elem) else { return false };
    reference.mutability.is_none() && path.path.segments.last().is_some_and(|last| last.ident == "Caller")
}

/// `None` for the output.
fn parameter_kind(ty: &Type) -> Result<Option<ParameterKind>> {
    let reference = match peel(ty) {
        Type::Reference(reference) => reference,
        Type::ImplTrait(of) => return Err(Error::new_spanned(of, NAME_THE_TYPE)),
        _ => return Ok(Some(ParameterKind::Value(Box::new(ty.clone())))),
    };
    if let Some(lifetime) = &reference.lifetime {
        let message = "what a kernel passes lives as long as the call: leave the lifetime away";
        return Err(Error::new_spanned(lifetime, message));
    }
    let mutable = reference.mutability.is_some();
    match peel(&reference.elem) {
        Type::Path(path) if path.path.is_ident("str") && !mutable => Ok(Some(ParameterKind::Str)),
        Type::Slice(slice) if matches!(peel(&slice.elem), Type::Path(path) if path.path.is_ident("u8")) => {
            Ok((!mutable).then_some(ParameterKind::Bytes))
        }
        _ => Err(Error::new_spanned(
            reference,
            "a parameter is a `Wire` value, `&str`, `&[u8]` or, as the last one, `&mut [u8]`",
        )),
    }
}
