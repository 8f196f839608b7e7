//! `#[derive(Wire)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, Ident, Result, Type};

/// The fields of a struct or variant: how they are bound in a pattern and the types in order.
struct Bound<'a> {
    pattern: TokenStream,
    names: Vec<Ident>,
    types: Vec<&'a Type>,
}

impl<'a> Bound<'a> {
    fn new(fields: &'a Fields) -> Self {
        let names: Vec<Ident> = (0..fields.len()).map(|i| format_ident!("field_{i}")).collect();
        let pattern = match fields {
            Fields::Unit => quote!(),
            Fields::Unnamed(_) => quote!((#(#names),*)),
            Fields::Named(named) => {
                let idents = named.named.iter().map(|field| &field.ident);
                quote!({ #(#idents: #names),* })
            }
        };
        Self { pattern, names, types: fields.iter().map(|field| &field.ty).collect() }
    }

    fn words(&self) -> TokenStream {
        let types = &self.types;
        quote!((0 #(+ <#types as __hostcall::Wire>::WORDS)*))
    }

    /// Statements that write the bound fields from `words[start..]`.
    fn write(&self, start: usize) -> TokenStream {
        let Self { names, types, .. } = self;
        quote! {
            let at = #start;
            #(
                __hostcall::Wire::to_words(#names, &mut words[at..at + <#types as __hostcall::Wire>::WORDS]);
                let at = at + <#types as __hostcall::Wire>::WORDS;
            )*
            let _ = at;
        }
    }

    /// Statements that read and bind the fields from `words[start..]`.
    fn read(&self, start: usize) -> TokenStream {
        let Self { names, types, .. } = self;
        quote! {
            let at = #start;
            #(
                let #names = <#types as __hostcall::Wire>::from_words(&words[at..])?;
                let at = at + <#types as __hostcall::Wire>::WORDS;
            )*
            let _ = at;
        }
    }

    fn schema(&self) -> TokenStream {
        let types = &self.types;
        quote!(#(let hash = __hostcall::schema::add_hash(hash, <#types as __hostcall::Wire>::SCHEMA);)*)
    }
}

pub fn derive(input: DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let text = name.to_string();
    let (words, schema, to_words, from_words) = match &input.data {
        Data::Struct(data) => {
            let fields = Bound::new(&data.fields);
            let (pattern, write, read) = (&fields.pattern, fields.write(0), fields.read(0));
            (
                fields.words(),
                fields.schema(),
                quote!(let Self #pattern = self; #write),
                quote!(#read Some(Self #pattern)),
            )
        }
        Data::Enum(data) if data.variants.is_empty() => {
            return Err(Error::new_spanned(name, "an enum without variants has no value to send"));
        }
        Data::Enum(data) => {
            let (mut schema, mut write, mut read, mut sizes) = (vec![], vec![], vec![], vec![]);
            for (tag, variant) in data.variants.iter().enumerate() {
                let (tag, ident) = (tag as u64, &variant.ident);
                let variant_text = ident.to_string();
                let fields = Bound::new(&variant.fields);
                let (pattern, writes, reads) = (&fields.pattern, fields.write(1), fields.read(1));
                let types = fields.schema();
                schema
                    .push(quote!(let hash = __hostcall::schema::add(hash, #variant_text.as_bytes()); #types));
                write.push(quote!(Self::#ident #pattern => { words[0] = #tag; #writes }));
                read.push(quote!(#tag => { #reads Some(Self::#ident #pattern) }));
                sizes.push(fields.words());
            }
            let words = quote!({
                let sizes = [#(#sizes),*];
                let mut most = 0;
                let mut i = 0;
                while i < sizes.len() {
                    if sizes[i] > most {
                        most = sizes[i];
                    }
                    i += 1;
                }
                1 + most
            });
            (
                words,
                quote!(#(#schema)*),
                quote!(words[..<Self as __hostcall::Wire>::WORDS].fill(0); match self { #(#write)* }),
                quote!(match words[0] { #(#read)* _ => None }),
            )
        }
        Data::Union(_) => {
            return Err(Error::new_spanned(name, "a union cannot be sent: derive `Wire` on an enum"));
        }
    };
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(syn::parse_quote!(__hostcall::Wire));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        const _: () = {
            use ::hostcall_device::__private as __hostcall;
            #[automatically_derived]
            impl #impl_generics __hostcall::Wire for #name #type_generics #where_clause {
                const WORDS: usize = #words;
                const SCHEMA: u64 = {
                    let hash = __hostcall::schema::of(#text);
                    #schema
                    hash
                };
                #[inline]
                fn to_words(&self, words: &mut [u64]) {
                    let _ = &words;
                    #to_words
                }
                #[inline]
                fn from_words(words: &[u64]) -> Option<Self> {
                    let _ = &words;
                    #from_words
                }
            }
        };
    })
}
