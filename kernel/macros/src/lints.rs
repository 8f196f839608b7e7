//! Lints of what derives make.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Fields};

/// The attribute that lets what is made use a type of which something is deprecated. Of other types nothing is allowed: a crate
/// may forbid that.
pub fn allow_deprecated(input: &DeriveInput) -> Option<TokenStream> {
    let is = |attributes: &[Attribute]| attributes.iter().any(|it| it.path().is_ident("deprecated"));
    let has = |fields: &Fields| fields.iter().any(|field| is(&field.attrs));
    let in_part = match &input.data {
        Data::Struct(data) => has(&data.fields),
        Data::Enum(data) => data.variants.iter().any(|variant| is(&variant.attrs) || has(&variant.fields)),
        Data::Union(_) => false,
    };
    let is_deprecated = is(&input.attrs) || in_part;
    is_deprecated.then(|| quote!(#[allow(deprecated, reason = "who has values of it is told")]))
}
