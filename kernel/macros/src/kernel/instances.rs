//! Instances of generic kernels, each of which has a name of its own.

use proc_macro2::{Group, Ident, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::collections::HashMap;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{AngleBracketedGenericArguments, Error, FnArg, GenericParam, Generics, Result, Token};

/// `name = <arguments>`.
pub struct Instance {
    pub name: Ident,
    pub arguments: AngleBracketedGenericArguments,
}

impl Parse for Instance {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        let arguments: AngleBracketedGenericArguments = input.parse()?;
        Ok(Self { name, arguments: AngleBracketedGenericArguments { colon2_token: None, ..arguments } })
    }
}

/// Reads what is in `instances(..)`, for a kernel with these parameters. A kernel that is not generic has none.
pub fn instances(generics: &Generics, given: Option<TokenStream>) -> Result<Vec<Instance>> {
    let is_type = |generic: &&GenericParam| !matches!(generic, GenericParam::Lifetime(_));
    let parameters: Vec<_> = generics.params.iter().filter(is_type).collect();
    let Some(given) = given else {
        return match parameters.first() {
            None => Ok(vec![]),
            Some(generic) => {
                let message = "each instance of a generic kernel has a name: \
                               `#[kernel(instances(sum_u32 = <u32>, sum_f64 = <f64>))]`";
                Err(Error::new_spanned(generic, message))
            }
        };
    };
    let instances = Punctuated::<Instance, Token![,]>::parse_terminated.parse2(given.clone())?;
    if parameters.is_empty() || instances.is_empty() {
        let message = "instances are those of a kernel with type parameters, or constants: one at least";
        return Err(Error::new_spanned(if given.is_empty() { quote!(#generics) } else { given }, message));
    }
    for Instance { name, arguments } in &instances {
        if arguments.args.len() != parameters.len() {
            let message = format!("`{name}` has {} of {}", arguments.args.len(), parameters.len());
            return Err(Error::new_spanned(arguments, format!("{message} arguments of the kernel's")));
        }
    }
    Ok(instances.into_iter().collect())
}

impl Instance {
    /// Puts the arguments in the place of the parameters of a generic kernel, in the type of what it takes.
    pub fn substitute(&self, generics: &Generics, input: &mut FnArg) -> Result<()> {
        let names = generics.params.iter().filter_map(|generic| match generic {
            GenericParam::Type(of) => Some(of.ident.to_string()),
            GenericParam::Const(of) => Some(of.ident.to_string()),
            GenericParam::Lifetime(_) => None,
        });
        let arguments = self.arguments.args.iter().map(ToTokens::to_token_stream);
        let arguments: HashMap<_, _> = names.zip(arguments).collect();
        if let FnArg::Typed(typed) = input {
            typed.ty = syn::parse2(substituted(typed.ty.to_token_stream(), &arguments))?;
        }
        Ok(())
    }
}

/// A type's tokens with these names replaced. A name behind `::` or `'` is another's, and so is one of `Trait<Name = ..>`.
fn substituted(tokens: TokenStream, arguments: &HashMap<String, TokenStream>) -> TokenStream {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_punct =
        |token: Option<&TokenTree>, c| matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == c);
    let mut all = TokenStream::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        let after = |count: usize| tokens.get(at + count);
        match token {
            TokenTree::Ident(name) => {
                let is_other = is_punct(before, ':') || is_punct(before, '\'') || is_punct(before, '.');
                let is_bound = is_punct(after(1), '=');
                let is_path = matches!(after(1), Some(TokenTree::Punct(p))
                    if p.as_char() == ':' && p.spacing() == Spacing::Joint);
                match arguments.get(&name.to_string()) {
                    Some(argument) if !is_other && !is_bound && is_path => all.extend(quote!(<#argument>)),
                    Some(argument) if !is_other && !is_bound => all.extend(argument.clone()),
                    _ => all.extend([token.clone()]),
                }
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), substituted(group.stream(), arguments));
                inner.set_span(group.span());
                all.extend([TokenTree::Group(inner)]);
            }
            token => all.extend([token.clone()]),
        }
    }
    all
}
