//! Parameters after the lane.

use super::peel;
use crate::names::Names;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, Ident, Lifetime, PathArguments, Result, Type, TypeReference};

/// A parameter after the lane.
pub struct Parameter {
    /// The type that stands for it in the kernel's tuple of parameters.
    pub marker: TokenStream,
    /// That type if a kernel can take it. Else it is an error that points at the type: always the same, so that the
    /// compiler tells of it once.
    pub checked: TokenStream,
    /// The type of the values that the kernel's function gets, for a launch's lifetime.
    pub value: TokenStream,
    pub span: Span,
}

/// A parameter marked `#[workgroup]`.
pub struct Shared {
    /// The type of what lies there, or of the elements of what a launch asks for.
    pub ty: Type,
    pub is_slice: bool,
}

/// Takes the mark `#[workgroup]` off a parameter. Returns whether there was one.
pub fn take_mark(input: &mut FnArg) -> Result<bool> {
    let FnArg::Typed(typed) = input else { return Ok(false) };
    let before = typed.attrs.len();
    if let Some(mark) = typed.attrs.iter().find(|attribute| attribute.path().is_ident("workgroup")) {
        mark.meta.require_path_only()?;
    }
    typed.attrs.retain(|attribute| !attribute.path().is_ident("workgroup"));
    Ok(typed.attrs.len() < before)
}

/// Reads a parameter marked `#[workgroup]`, and the one before it.
pub fn shared_parameter(input: &FnArg, before: Option<&Shared>) -> Result<Shared> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(input, "a kernel cannot take `self`"));
    };
    if before.is_some_and(|before| before.is_slice) {
        let message = "a slice takes all of the workgroup's memory that is left: it is the last parameter marked \
                       `#[workgroup]`";
        return Err(Error::new_spanned(input, message));
    }
    let message = "workgroup memory is shared by its lanes: take `&[Shared<T>; N]`, or `&[Shared<T>]` for what a launch asks \
                   for";
    let Type::Reference(reference) = peel(&typed.ty) else {
        return Err(Error::new_spanned(&typed.ty, message));
    };
    if reference.mutability.is_some() {
        return Err(Error::new_spanned(reference, message));
    }
    if let Some(lifetime) = reference.lifetime.as_ref().filter(|lifetime| lifetime.ident == "static") {
        let message = "workgroup memory lives as long as its workgroup: leave `'static` away";
        return Err(Error::new_spanned(lifetime, message));
    }
    Ok(match peel(&reference.elem) {
        Type::Slice(slice) => Shared { ty: (*slice.elem).clone(), is_slice: true },
        element => Shared { ty: element.clone(), is_slice: false },
    })
}

/// Where in workgroup memory the parameter of this place begins.
pub fn offset(names: &Names, shared: &[Shared], place: usize) -> TokenStream {
    let k = &names.private;
    shared[..place].iter().fold(quote!(0), |offset, Shared { ty, .. }| {
        let end = quote_spanned!(ty.span()=> workgroup_end);
        quote!(#k::#end::<#ty>(#offset))
    })
}

/// Reads a parameter that a launch passes.
pub fn parameter(names: &Names, of_launch: &Lifetime, input: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(input, "a kernel cannot take `self`"));
    };
    let k = &names.private;
    let span = typed.ty.span();
    let ty = peel(&typed.ty);
    let (marker, checked, value) = match (ty, optional(ty)) {
        (Type::Reference(reference), _) => reference_parameter(names, of_launch, reference)?,
        (_, Some(reference)) => {
            let (marker, checked, value) = reference_parameter(names, of_launch, reference)?;
            (quote!(#k::Optional<#marker>), quote!(#k::Optional<#checked>), quote!(#k::Option<#value>))
        }
        (Type::ImplTrait(of), None) => {
            let message = "name the type, as a generic kernel does: `fn f<T: Trait>(lane: &Lane, x: T)`";
            return Err(Error::new_spanned(of, message));
        }
        (value, None) => {
            refuse_lifetime(value)?;
            (quote!(#value), checked(names, value, "OfValue", "Value"), quote!(#value))
        }
    };
    Ok(Parameter { marker, checked, value, span })
}

/// Returns the reference in `Option<&..>`.
fn optional(ty: &Type) -> Option<&TypeReference> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) if arguments.args.len() == 1 => match peel(inner) {
            Type::Reference(reference) => Some(reference),
            _ => None,
        },
        _ => None,
    }
}

/// The marker, the checked marker and the type of the values of a parameter `&T` or `&[T]`.
fn reference_parameter(
    names: &Names,
    of_launch: &Lifetime,
    reference: &TypeReference,
) -> Result<(TokenStream, TokenStream, TokenStream)> {
    let k = &names.private;
    if reference.mutability.is_some() {
        let message = "all lanes share the arguments: take `x: &[Global<T>]` and write with `x[i].set(value)`; or \
                       `mut x: Disjoint<'_, T>`, of which each lane writes its own part by `x.share(lane)`";
        return Err(Error::new_spanned(reference, message));
    }
    if let Some(lifetime) = reference.lifetime.as_ref().filter(|lifetime| lifetime.ident == "static") {
        let message = "a kernel's arguments live as long as the launch: leave `'static` away";
        return Err(Error::new_spanned(lifetime, message));
    }
    Ok(match peel(&reference.elem) {
        Type::Slice(slice) => {
            let element = &slice.elem;
            refuse_lifetime(element)?;
            let checked = checked(names, element, "OfPlain", "Slice");
            (quote!(#k::Slice<#element>), checked, quote!(&#of_launch [#element]))
        }
        Type::Path(path) if path.path.is_ident("str") => {
            let message = "a kernel takes no text: pass its bytes as `&[u8]`";
            return Err(Error::new_spanned(reference, message));
        }
        element => {
            refuse_lifetime(element)?;
            let checked = checked(names, element, "OfPlain", "Ref");
            (quote!(#k::Ref<#element>), checked, quote!(&#of_launch #element))
        }
    })
}

fn refuse_lifetime(ty: &Type) -> Result<()> {
    match lifetime(quote!(#ty)) {
        None => Ok(()),
        Some(token) => {
            let message = "what a kernel gets holds no references of its own: pass the data as a parameter";
            Err(Error::new_spanned(token, message))
        }
    }
}

/// The parameter's marker, by way of a trait that `Parameter` has if its type can be one. An error points at all of the
/// type.
fn checked(names: &Names, ty: &Type, of: &str, marker: &str) -> TokenStream {
    let (start, end) = (ty.span(), last_span(quote!(#ty)).unwrap_or_else(|| ty.span()));
    let k = located_at(&names.private, start);
    let [of, marker] = [of, marker].map(|name| Ident::new(name, start));
    let parameter = Ident::new("Parameter", end);
    quote_spanned!(start=> <#k::#parameter as #k::#of<#ty>>::#marker)
}

/// Returns the tokens as if they had been written where `span` is.
pub fn located_at(tokens: &TokenStream, span: Span) -> TokenStream {
    let located = tokens.clone().into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    located.collect()
}

/// The span of the last token.
fn last_span(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().last().map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            last_span(group.stream()).unwrap_or_else(|| group.span())
        }
        TokenTree::Group(group) => group.span_close(),
        token => token.span(),
    })
}

/// The lifetime of what a launch's kernel gets.
pub fn of_launch() -> Lifetime {
    Lifetime::new("'__hostcall_launch", Span::mixed_site())
}

/// The first lifetime among the tokens that is not `'_`, which stands for the launch's.
fn lifetime(tokens: TokenStream) -> Option<TokenStream> {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(quote) if quote.as_char() == '\'' => {
                let name = tokens.next();
                if !matches!(&name, Some(TokenTree::Ident(name)) if name == "_") {
                    return Some(quote!(#quote #name));
                }
            }
            TokenTree::Group(group) => {
                if let Some(found) = lifetime(group.stream()) {
                    return Some(found);
                }
            }
            _ => {}
        }
    }
    None
}
