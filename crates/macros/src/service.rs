//! `#[service]`.

mod host;

use crate::options::Options;
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, Ident, ItemTrait, Pat, Result, ReturnType, TraitItem, TraitItemFn, Type};

/// Most methods of a service: derived numbers leave room for so many.
const MAX_METHODS: usize = 16;

/// Associated functions of the generated struct that are no methods of the service.
const RESERVED: [&str; 3] = ["serve", "serve_async", "within_us"];

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
    /// All parameters but the output.
    parameters: Vec<Parameter>,
    /// The `&mut [u8]` at the end.
    output: Option<Ident>,
    result: TokenStream,
    has_result: bool,
}

pub fn service(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut options = Options::parse(options)?;
    let item: ItemTrait = syn::parse2(item)?;
    let number = options.value("number")?;
    let internal = options.flag("internal")?;
    options.finish("`number`")?;
    check_trait(&item)?;
    let methods = item.items.iter().map(Method::parse).collect::<Result<Vec<_>>>()?;
    if methods.len() > MAX_METHODS {
        return Err(Error::new_spanned(&item.ident, "a service has 16 methods at most: make two services"));
    }

    let name = &item.ident;
    let text = name.to_string();
    let count = methods.len();
    let base = match &number {
        None => quote!(__hostcall::derived_number(__hostcall::schema::of(#text))),
        Some(number) => quote!(#number),
    };
    let check = match &number {
        Some(number) if !internal => {
            let message = "a service's number, and those of its methods, are 256 to 32767";
            quote_spanned! {number.span()=>
                const _: () = assert!(
                    BASE >= __hostcall::number::USER && BASE + (#count as u16) <= __hostcall::number::DERIVED,
                    #message
                );
            }
        }
        _ => quote!(),
    };
    let table = methods.iter().enumerate().map(|(index, method)| method.table_entry(&text, index));
    let device = device_side(&item, &methods);
    let host = host::side(&item, &methods);
    let (visibility, attributes) = (&item.vis, &item.attrs);
    Ok(quote! {
        #(#attributes)*
        #[derive(Clone, Copy, Debug)]
        #visibility struct #name;

        const _: () = {
            use ::hostcall_device::__private as __hostcall;
            const BASE: u16 = #base;
            #check
            impl #name {
                /// The service's methods, in the trait's order.
                pub const METHODS: &'static [__hostcall::Method; #count] = &[#(#table),*];
            }
        };
        #device
        #host
    })
}

fn check_trait(item: &ItemTrait) -> Result<()> {
    if !item.generics.params.is_empty() {
        return Err(Error::new_spanned(&item.generics, "a service cannot be generic: its types are fixed"));
    }
    if !item.supertraits.is_empty() {
        return Err(Error::new_spanned(&item.supertraits, "a service has no supertraits"));
    }
    if item.items.is_empty() {
        return Err(Error::new_spanned(&item.ident, "a service needs at least one method"));
    }
    Ok(())
}

impl Method {
    fn parse(item: &TraitItem) -> Result<Self> {
        let TraitItem::Fn(TraitItemFn { attrs, sig, default, .. }) = item else {
            return Err(Error::new_spanned(item, "a service has methods only"));
        };
        if let Some(body) = default {
            return Err(Error::new_spanned(body, "the handler on the host has the body: end with `;`"));
        }
        if !sig.generics.params.is_empty() {
            return Err(Error::new_spanned(&sig.generics, "a service's method cannot be generic"));
        }
        if let Some(token) = &sig.asyncness {
            let message = "leave `async` away: `serve_async` takes async handlers";
            return Err(Error::new_spanned(token, message));
        }
        if RESERVED.iter().any(|reserved| sig.ident == reserved) {
            return Err(Error::new_spanned(&sig.ident, "the generated struct has a function of this name"));
        }
        let mut parameters = Vec::new();
        let mut output = None;
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
            let Pat::Ident(pattern) = &*typed.pat else {
                return Err(Error::new_spanned(&typed.pat, "name the parameter"));
            };
            let name = pattern.ident.clone();
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
            ReturnType::Type(_, ty) => match &**ty {
                Type::Reference(reference) => {
                    let message =
                        "a result is a `Wire` value; bytes come back through a last `&mut [u8]` parameter";
                    return Err(Error::new_spanned(reference, message));
                }
                Type::Tuple(tuple) if tuple.elems.is_empty() => (quote!(()), false),
                ty => (quote!(#ty), true),
            },
        };
        let docs = attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
        Ok(Self { docs, name: sig.ident.clone(), parameters, output, result, has_result })
    }

    /// Whether the method's values travel as words alone.
    fn words_only(&self) -> bool {
        let values = self.parameters.iter().all(|p| matches!(p.kind, ParameterKind::Value(_)));
        values && self.output.is_none()
    }

    /// The tuple type of the argument words: values, and for slices their lengths.
    fn arguments(&self) -> TokenStream {
        let types = self.parameters.iter().map(|parameter| match &parameter.kind {
            ParameterKind::Value(ty) => quote!(#ty),
            ParameterKind::Str | ParameterKind::Bytes => quote!(u32),
        });
        quote!((#(#types,)*))
    }

    fn names(&self) -> Vec<&Ident> {
        self.parameters.iter().map(|parameter| &parameter.name).collect()
    }

    fn table_entry(&self, service: &str, index: usize) -> TokenStream {
        let full_name = format!("{service}::{}", self.name);
        let result = &self.result;
        let (index, output) = (index as u16, self.output.iter());
        let parameters = self.parameters.iter().map(|parameter| match &parameter.kind {
            ParameterKind::Value(ty) => quote_spanned!(ty.span()=> <#ty as __hostcall::Wire>::SCHEMA),
            ParameterKind::Str => quote!(__hostcall::schema::of("&str")),
            ParameterKind::Bytes => quote!(__hostcall::schema::of("&[u8]")),
        });
        let output = output.map(|_| quote!(let hash = __hostcall::schema::add(hash, b"&mut [u8]");));
        quote! {
            __hostcall::Method {
                name: #full_name,
                number: BASE + #index,
                schema: {
                    let hash = __hostcall::schema::of(#full_name);
                    #(let hash = __hostcall::schema::add_hash(hash, #parameters);)*
                    #(#output)*
                    __hostcall::schema::add_hash(hash, <#result as __hostcall::Wire>::SCHEMA)
                },
            }
        }
    }
}

/// `None` for the output.
fn parameter_kind(ty: &Type) -> Result<Option<ParameterKind>> {
    let Type::Reference(reference) = ty else {
        return Ok(Some(ParameterKind::Value(Box::new(ty.clone()))));
    };
    let mutable = reference.mutability.is_some();
    match &*reference.elem {
        Type::Path(path) if path.path.is_ident("str") && !mutable => Ok(Some(ParameterKind::Str)),
        Type::Slice(slice) if matches!(&*slice.elem, Type::Path(path) if path.path.is_ident("u8")) => {
            Ok((!mutable).then_some(ParameterKind::Bytes))
        }
        _ => Err(Error::new_spanned(
            reference,
            "a parameter is a `Wire` value, `&str`, `&[u8]` or, as the last one, `&mut [u8]`",
        )),
    }
}

/// The functions that a kernel calls.
fn device_side(item: &ItemTrait, methods: &[Method]) -> TokenStream {
    let (visibility, name) = (&item.vis, &item.ident);
    let within = format_ident!("{name}Within");
    let within_docs = format!("The methods of [`{name}`] with a deadline.");
    let mut plain = Vec::new();
    let mut deadline = Vec::new();
    for (index, method) in methods.iter().enumerate() {
        let Method { docs, name: method_name, result, .. } = method;
        let names = method.names();
        let types = method.parameters.iter().map(|parameter| match &parameter.kind {
            ParameterKind::Value(ty) => quote!(#ty),
            ParameterKind::Str => quote!(&str),
            ParameterKind::Bytes => quote!(&[u8]),
        });
        let mut parameters = quote!(#(#names: #types),*);
        let mut forwarded = quote!(#(#names),*);
        let returns = match &method.output {
            Some(output) => {
                let comma = (!names.is_empty()).then(|| quote!(,));
                parameters = quote!(#parameters #comma #output: &mut [u8]);
                forwarded = quote!(#forwarded #comma #output);
                quote!((#result, usize))
            }
            None => result.clone(),
        };
        let lengths = method.parameters.iter().map(|Parameter { name, kind }| match kind {
            ParameterKind::Value(_) => quote!(#name),
            ParameterKind::Str | ParameterKind::Bytes => quote!(__hostcall::slice_len(#name.len())?),
        });
        let arguments = quote!((#(#lengths,)*));
        let call = if method.words_only() {
            quote!(__hostcall::call(&#name::METHODS[#index], self.0, &#arguments))
        } else {
            let slices = method.parameters.iter().filter_map(|Parameter { name, kind }| match kind {
                ParameterKind::Value(_) => None,
                ParameterKind::Str => Some(quote!(#name.as_bytes())),
                ParameterKind::Bytes => Some(quote!(#name)),
            });
            let (output, take_result) = match &method.output {
                Some(output) => (quote!(#output), quote!()),
                None => (quote!(&mut []), quote!(.map(|(result, _)| result))),
            };
            let call = quote!(__hostcall::call_with_bytes);
            let method = quote!(&#name::METHODS[#index]);
            quote!(#call(#method, self.0, &#arguments, &[#(#slices),*], #output)#take_result)
        };
        deadline.push(quote! {
            #(#docs)*
            #[inline]
            pub fn #method_name(self, #parameters) -> Result<#returns, __hostcall::CallError> {
                #call
            }
        });
        plain.push(quote! {
            #(#docs)*
            #[inline]
            pub fn #method_name(#parameters) -> Result<#returns, __hostcall::CallError> {
                #within(__hostcall::CallOptions::DEFAULT).#method_name(#forwarded)
            }
        });
        if !method.words_only() {
            continue;
        }
        let start = format_ident!("start_{method_name}");
        let start_docs = format!("Starts [`{name}::{method_name}`], to be waited for later.");
        plain.push(quote! {
            #[doc = #start_docs]
            #[inline]
            pub fn #start(#parameters) -> __hostcall::Pending<#result> {
                __hostcall::start(&#name::METHODS[#index], __hostcall::CallOptions::DEFAULT, &#arguments)
            }
        });
        if method.has_result {
            continue;
        }
        let post = format_ident!("post_{method_name}");
        let post_docs =
            format!("Posts [`{name}::{method_name}`]: returns at once, and nobody learns how it ended.");
        plain.push(quote! {
            #[doc = #post_docs]
            #[inline]
            pub fn #post(#parameters) -> Result<(), __hostcall::CallError> {
                __hostcall::post(&#name::METHODS[#index], &#arguments)
            }
        });
    }
    quote! {
        #[doc = #within_docs]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #within(::hostcall_device::__private::CallOptions);

        const _: () = {
            use ::hostcall_device::__private as __hostcall;
            #[allow(clippy::too_many_arguments, reason = "as many as the service's methods have")]
            impl #name {
                /// The methods with a deadline: `timeout_us` after the host sees the call it ends with
                /// `CallError::TimedOut`. 0 is no deadline.
                pub const fn within_us(timeout_us: u32) -> #within {
                    #within(__hostcall::CallOptions { timeout_us })
                }
                #(#plain)*
            }
            #[allow(clippy::too_many_arguments, reason = "as many as the service's methods have")]
            impl #within {
                #(#deadline)*
            }
        };
    }
}
