//! `event!`.

use crate::names::Names;
use crate::print::{Argument, Line, line, resolve};
use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::{Error, Result};

/// Most values of an event.
const MAX_VALUES: usize = 5;

pub fn event(tokens: TokenStream) -> Result<TokenStream> {
    let Line { krate, text: literal, mut arguments } = line.parse2(tokens.clone())?;
    let names = Names::new(&tokens, krate)?;
    let text = literal.value();
    let (format, parsed) = resolve(&literal, &text, &mut arguments)?;
    if arguments.len() > MAX_VALUES {
        return Err(Error::new_spanned(&literal, "an event has five values at most: write two"));
    }
    let bound: Vec<_> = (0..arguments.len()).map(|i| names.fresh(&format!("value_{i}"))).collect();
    let (point, on) = (names.fresh("point"), names.fresh("on"));
    let values = arguments.iter().map(|argument| &argument.value);
    let checked = arguments.iter().zip(&bound).map(|(Argument { name, .. }, bound)| match name {
        None => quote!(*#bound),
        Some(name) => quote!(#name = *#bound),
    });
    if let Some(i) = (0..arguments.len()).find(|i| parsed.uses_of(*i).address) {
        let value = &arguments[i].value;
        return Err(Error::new_spanned(value, "an event shows pointers by `{:?}` or `{:#x}`, not by `{:p}`"));
    }
    let device = &names.private;
    Ok(quote! {
        if let ::core::option::Option::Some(#on) = #device::traces() {
            match (#(&(#values),)*) {
                (#(#bound,)*) => {
                    // Never runs: the compiler checks the values against the text as it does for `format!`.
                    if false {
                        let _ = ::core::format_args!(#literal, #(#checked),*);
                    }
                    #[allow(non_upper_case_globals, reason = "its name is one that no user's name meets")]
                    static #point: #device::Point =
                        #device::Point::event(#format, ::core::file!(), ::core::line!());
                    #device::write_point(
                        #on,
                        &#point,
                        [#(#device::point_tag_of(#bound)),*],
                        [#(#device::Argument::word(#bound)),*],
                    )
                }
            }
        }
    })
}
