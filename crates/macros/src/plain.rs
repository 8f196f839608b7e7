//! `#[derive(Plain)]`.

use crate::names::Names;
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Meta, Result, Token};

pub fn derive(input: DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(_) => {
            let message = "not all bytes are values of an enum: keep a number, and make the enum of it where it is \
                           used";
            return Err(Error::new_spanned(name, message));
        }
        Data::Union(_) => {
            return Err(Error::new_spanned(
                name,
                "a union cannot be `Plain`: its bytes may be uninitialised",
            ));
        }
    };
    if let Some(generic) = input.generics.params.first() {
        let message = "a `Plain` struct cannot be generic: whether it has padding must be known here; write one \
                       struct for each type";
        return Err(Error::new_spanned(generic, message));
    }
    check_layout(&input)?;
    let names = Names::new(&quote!(#input), Names::of_attributes(&input.attrs)?)?;
    let k = &names.private;
    let text = name.unraw().to_string();
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let schemas = types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as #k::Plain>::SCHEMA));
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let padding = format!(
        "`{text}` has padding, whose bytes would be no value: order the fields by size, the largest \
                           first, and fill what is left with a field such as `reserved: [u8; 4]`"
    );
    Ok(quote! {
        #[allow(unsafe_code, clippy::undocumented_unsafe_blocks, reason = "the macro argues its safety")]
        const _: () = {
            ::core::assert!(::core::mem::size_of::<#name>() == 0 #(+ ::core::mem::size_of::<#types>())*, #padding);

            // SAFETY: every field is `Plain`, the size says that there is no padding between them, and the layout
            // is C's, which is the same for these fields on every target.
            #[automatically_derived]
            unsafe impl #impl_generics #k::Plain for #name #type_generics #where_clause {
                const SCHEMA: #k::u64 = #k::struct_schema(#text, &[#(#schemas),*]);
                const SHARED: #k::bool = false #(|| <#types as #k::Plain>::SHARED)*;
            }
        };
    })
}

/// Refuses structs whose layout is not C's.
fn check_layout(input: &DeriveInput) -> Result<()> {
    let repr = |attribute: &&Attribute| attribute.path().is_ident("repr");
    let mut is_c = false;
    for attribute in input.attrs.iter().filter(repr) {
        for meta in attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)? {
            if meta.path().is_ident("packed") {
                let message = "a packed struct cannot be `Plain`: its fields could not be borrowed";
                return Err(Error::new_spanned(meta, message));
            }
            is_c |= meta.path().is_ident("C") || meta.path().is_ident("transparent");
        }
    }
    if is_c {
        return Ok(());
    }
    let message = "a `Plain` struct has the same layout on host and device: write `#[repr(C)]` above it";
    Err(Error::new_spanned(&input.ident, message))
}
