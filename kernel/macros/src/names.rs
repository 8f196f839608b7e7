//! The names that expansions use, so that no name of a user's can meet them.
//!
//! - Functions, types and variants are named by their full path, through the crate's `__private`.
//! - Items and variables of an expansion have names that begin with `__hostcall` and that do not occur in the macro's
//!   input. Variables are hygienic besides ([`Span::mixed_site`]).
//! - A user's parameters are declared in blocks where a function has the parameter's name. Otherwise a
//!   constant of that name in the user's module, such as another kernel, would turn the parameter into a
//!   pattern that matches the constant. Nobody can call such a function, since its argument has no values:
//!   a macro that a kernel uses may mean the user's own function of that name, and finds this one.

use crate::options::Options;
use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};
use std::collections::HashSet;
use syn::ext::IdentExt;
use syn::{Error, Expr, Result};

/// The names of one expansion.
pub struct Names {
    /// Path of the device crate's `__private`.
    pub private: TokenStream,
    taken: HashSet<String>,
}

impl Names {
    /// Names for the expansion of a macro with this input, which name the device crate as `krate` or, without one, as
    /// the user's package does.
    pub fn new(input: &TokenStream, krate: Option<TokenStream>) -> Result<Self> {
        let krate = krate.map_or_else(find_crate, Ok)?;
        let mut taken = HashSet::new();
        collect(input.clone(), &mut taken);
        Ok(Self { private: quote!(#krate::__private), taken })
    }

    /// A name for an item or variable of the expansion.
    pub fn fresh(&self, text: &str) -> Ident {
        let mut name = format!("__hostcall_{text}");
        while self.taken.contains(&name) {
            name.push('_');
        }
        Ident::new(&name, Span::mixed_site())
    }
}

/// Takes the option `crate = path`, for macros that other crates' macros expand to.
pub fn crate_option(options: &mut Options) -> Result<Option<TokenStream>> {
    match options.value("crate")? {
        None => Ok(None),
        Some(Expr::Path(path)) => Ok(Some(quote!(#path))),
        Some(other) => {
            Err(Error::new_spanned(other, "`crate` is a path to hostcall: `crate = $crate::hostcall`"))
        }
    }
}

/// The device crate as the package names it that is being compiled: `hostcall-device`, or `hostcall`, which has all of
/// it. `hostcall-device` goes first, because packages for GPUs often have `hostcall` for their tests besides.
fn find_crate() -> Result<TokenStream> {
    for (package, library) in [("hostcall-device", "hostcall_device"), ("hostcall", "hostcall")] {
        match crate_name(package) {
            // The libraries are `extern crate self` under their own names.
            Ok(FoundCrate::Itself) => {
                let ident = format_ident!("{library}");
                return Ok(quote!(::#ident));
            }
            Ok(FoundCrate::Name(name)) => {
                let ident = Ident::new(&name, Span::call_site());
                return Ok(quote!(::#ident));
            }
            Err(_) => {}
        }
    }
    let message = "neither `hostcall` nor, in a package for GPUs, `hostcall-device` is among this package's \
                   dependencies; in a macro's expansion say where it is: `crate = $crate::hostcall`";
    Err(Error::new(Span::call_site(), message))
}

/// Adds the names among tokens.
pub fn collect(tokens: TokenStream, into: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => drop(into.insert(ident.to_string())),
            TokenTree::Group(group) => collect(group.stream(), into),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Functions with the names of parameters; see the module's documentation.
pub fn shadows<'a>(private: &TokenStream, names: impl IntoIterator<Item = &'a Ident>) -> TokenStream {
    let mut seen = HashSet::new();
    let names = names.into_iter().filter(|name| seen.insert(name.unraw().to_string()));
    quote! {#(
        #[allow(dead_code, non_snake_case, reason = "they only have names")]
        fn #names(_: #private::NameOfAParameter) {}
    )*}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_input_are_left_alone() {
        let input = quote!(
            fn f(__hostcall_lane: u64) {
                { __hostcall_lane_ }
            }
        );
        let names = Names::new(&input, Some(quote!(::x))).unwrap();
        assert_eq!(names.fresh("lane").to_string(), "__hostcall_lane__");
        assert_eq!(names.fresh("launch").to_string(), "__hostcall_launch");
    }

    #[test]
    fn a_raw_name_is_the_same_name() {
        let parameters = [format_ident!("r#lane"), format_ident!("lane"), format_ident!("r#type")];
        let functions = shadows(&quote!(::x), &parameters).to_string();
        assert_eq!(functions.matches("fn ").count(), 2, "{functions}");
    }
}
