//! `print!` and its like.

use crate::names::Names;
use hostcall_format::{Format, MAX_ARGUMENTS, Uses};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprPath, LitStr, Result, Token};

/// The streams of `System::register_format`.
#[derive(Clone, Copy)]
pub enum Stream {
    Stdout = 1,
    Stderr = 2,
}

pub(super) struct Argument {
    pub name: Option<Ident>,
    pub value: Expr,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        // As for `format!`, a name may be a keyword.
        let named = input.peek(Ident::peek_any) && input.peek2(Token![=]) && !input.peek2(Token![==]);
        let name = if named { Some(Ident::parse_any(input)?) } else { None };
        if named {
            input.parse::<Token![=]>()?;
        }
        Ok(Self { name, value: input.parse()? })
    }
}

/// A macro's input.
pub(super) struct Line {
    /// `crate = path,` before the text, for macros that other crates' macros expand to.
    pub krate: Option<TokenStream>,
    pub text: LitStr,
    pub arguments: Vec<Argument>,
}

pub(super) fn line(input: ParseStream<'_>) -> Result<Line> {
    let mut krate = None;
    if input.peek(Token![crate]) && input.peek2(Token![=]) {
        input.parse::<Token![crate]>()?;
        input.parse::<Token![=]>()?;
        let path: syn::Path = input.parse()?;
        krate = Some(quote!(#path));
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    if input.is_empty() {
        return Ok(Line { krate, text: LitStr::new("", Span::call_site()), arguments: Vec::new() });
    }
    let text = input.parse()?;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    let arguments = Punctuated::<Argument, Token![,]>::parse_terminated(input)?;
    Ok(Line { krate, text, arguments: arguments.into_iter().collect() })
}

pub fn print(tokens: TokenStream, stream: Stream, end: &str) -> Result<TokenStream> {
    let Line { krate, text: literal, mut arguments } = line.parse2(tokens.clone())?;
    let names = Names::new(&tokens, krate)?;
    let text = literal.value();
    let (format, parsed) = resolve(&literal, &text, &mut arguments)?;
    let format = format + end;
    if arguments.len() > MAX_ARGUMENTS {
        return Err(Error::new_spanned(&literal, "a line has 12 arguments at most: print it in two"));
    }
    let bound: Vec<_> = (0..arguments.len()).map(|i| names.fresh(&format!("argument_{i}"))).collect();
    let site = names.fresh("site");
    let values = arguments.iter().map(|argument| &argument.value);
    let checked = arguments.iter().zip(&bound).map(|(Argument { name, .. }, bound)| match name {
        None => quote!(*#bound),
        Some(name) => quote!(#name = *#bound),
    });
    let stream = stream as u32;
    let device = &names.private;
    let shown: Vec<_> = (bound.iter().enumerate())
        .map(|(i, bound)| match parsed.uses_of(i) {
            // The address itself, of whatever type, travels as a pointer.
            Uses { address: true, value: false } => quote!((&#device::AsAddress(#bound))),
            Uses { address: true, value: true } => quote!((&#device::AsBoth(#bound))),
            Uses { address: false, .. } => quote!((&#device::AsValue(#bound))),
        })
        .collect();
    Ok(quote! {
        match (#(&(#values),)*) {
            (#(#bound,)*) => {
                #[allow(unused_imports, reason = "a line may have no arguments, or none of one kind")]
                use #device::{ByDevice as _, ByHost as _};
                if true #(&& #shown.hostcall_by_host())* {
                    #[allow(non_upper_case_globals, reason = "its name is one that no user's name meets")]
                    static #site: #device::Site = #device::Site::new(#format, #stream);
                    #device::print(
                        &#site,
                        [#(#shown.hostcall_tag()),*],
                        [#(#shown.hostcall_word()),*],
                        [#(#shown.hostcall_text()),*],
                    )
                } else {
                    // Also where it never runs, the compiler checks the arguments against the text as it does for `format!`.
                    #device::print_text(#stream, #end, ::core::format_args!(#literal, #(#checked),*))
                }
            }
        }
    })
}

/// `text` with positions instead of names, and parsed. Captured variables become named arguments.
pub(super) fn resolve(
    literal: &LitStr,
    text: &str,
    arguments: &mut Vec<Argument>,
) -> Result<(String, Format)> {
    let mut names = Vec::new();
    let parsed = Format::parse_with(text, &mut |name, range| {
        let is_it = |argument: &Argument| argument.name.as_ref().is_some_and(|other| other.unraw() == name);
        let known = arguments.iter().position(is_it);
        let position = match known {
            Some(position) => position,
            None => {
                // A keyword is a variable's name here: as an expression, `return` would run. Only `self` and
                // the like have no raw form.
                let variable = |text: &str| LitStr::new(text, literal.span()).parse::<ExprPath>();
                let value = Expr::Path(variable(&format!("r#{name}")).or_else(|_| variable(name)).ok()?);
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
