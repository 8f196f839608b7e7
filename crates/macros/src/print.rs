//! `print!` and its like.

use hostcall_format::{Format, MAX_ARGUMENTS, Uses};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, LitStr, Result, Token};

/// The streams of `System::register_format`.
#[derive(Clone, Copy)]
pub enum Stream {
    Stdout = 1,
    Stderr = 2,
}

struct Argument {
    name: Option<Ident>,
    value: Expr,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let named = input.peek(syn::Ident) && input.peek2(Token![=]) && !input.peek2(Token![==]);
        let name = if named { Some(input.parse()?) } else { None };
        if named {
            input.parse::<Token![=]>()?;
        }
        Ok(Self { name, value: input.parse()? })
    }
}

fn line(input: ParseStream<'_>) -> Result<(LitStr, Vec<Argument>)> {
    if input.is_empty() {
        return Ok((LitStr::new("", Span::call_site()), Vec::new()));
    }
    let text = input.parse()?;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    let arguments = Punctuated::<Argument, Token![,]>::parse_terminated(input)?;
    Ok((text, arguments.into_iter().collect()))
}

pub fn print(tokens: TokenStream, stream: Stream, end: &str) -> Result<TokenStream> {
    let (literal, mut arguments) = line.parse2(tokens)?;
    let text = literal.value();
    let (format, parsed) = resolve(&literal, &text, &mut arguments)?;
    let format = format + end;
    if arguments.len() > MAX_ARGUMENTS {
        return Err(Error::new_spanned(&literal, "a line has 12 arguments at most: print it in two"));
    }
    let bound: Vec<_> =
        (0..arguments.len()).map(|i| format_ident!("argument_{i}", span = Span::mixed_site())).collect();
    let values = arguments.iter().map(|argument| &argument.value);
    let checked = arguments.iter().zip(&bound).map(|(Argument { name, .. }, bound)| match name {
        None => quote!(*#bound),
        Some(name) => quote!(#name = *#bound),
    });
    let stream = stream as u32;
    let device = quote!(::hostcall_device::__private);
    let (mut tags, mut words, mut texts, mut checks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (i, bound) in bound.iter().enumerate() {
        match parsed.uses_of(i) {
            // The address itself, of whatever type, travels as a pointer.
            Uses { address: true, value: false } => {
                tags.push(quote!(#device::address_of(#bound).0));
                words.push(quote!(#device::address_of(#bound).1));
                texts.push(quote!(""));
                continue;
            }
            Uses { address: true, value: true } => checks.push(quote!(#device::check_pointer(#bound);)),
            Uses { address: false, .. } => {}
        }
        tags.push(quote!(#device::tag_of(#bound)));
        words.push(quote!(#device::Argument::word(#bound)));
        texts.push(quote!(#device::Argument::text(#bound)));
    }
    Ok(quote! {
        match (#(&(#values),)*) {
            (#(#bound,)*) => {
                // Never runs: the compiler checks the arguments against the text as it does for `format!`.
                if false {
                    let _ = ::core::format_args!(#literal, #(#checked),*);
                }
                #(#checks)*
                static SITE: #device::Site = #device::Site::new(#format, #stream);
                #device::print(&SITE, [#(#tags),*], [#(#words),*], [#(#texts),*])
            }
        }
    })
}

/// `text` with positions instead of names, and parsed. Captured variables become named arguments.
fn resolve(literal: &LitStr, text: &str, arguments: &mut Vec<Argument>) -> Result<(String, Format)> {
    let mut names = Vec::new();
    let parsed = Format::parse_with(text, &mut |name, range| {
        let known = arguments.iter().position(|argument| argument.name.as_ref().is_some_and(|n| n == name));
        let position = match known {
            Some(position) => position,
            None => {
                let value: Expr = LitStr::new(name, literal.span()).parse().ok()?;
                let name = Some(Ident::new(name, literal.span()));
                arguments.push(Argument { name, value });
                arguments.len() - 1
            }
        };
        names.push((range, position));
        Some(position)
    })
    .map_err(|error| Error::new_spanned(literal, error))?;
    let mut resolved = text.to_owned();
    for (range, position) in names.into_iter().rev() {
        resolved.replace_range(range, &position.to_string());
    }
    Ok((resolved, parsed))
}
