//! `#[derive(Wire)]`.

use crate::lints::allow_deprecated;
use crate::names::{Names, crate_option};
use crate::options::Options;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Fields, Ident, Result, Type};

/// The fields of a struct or variant: how they are bound in a pattern and the types in order.
struct Bound<'a> {
    names: &'a Names,
    words: &'a Ident,
    pattern: TokenStream,
    bound: Vec<Ident>,
    types: Vec<&'a Type>,
}

impl<'a> Bound<'a> {
    fn new(names: &'a Names, words: &'a Ident, fields: &'a Fields) -> Self {
        let bound: Vec<Ident> = (0..fields.len()).map(|i| names.fresh(&format!("field_{i}"))).collect();
        let pattern = match fields {
            Fields::Unit => quote!(),
            Fields::Unnamed(_) => quote!((#(#bound),*)),
            Fields::Named(named) => {
                let idents = named.named.iter().map(|field| &field.ident);
                quote!({ #(#idents: #bound),* })
            }
        };
        let types = fields.iter().map(|field| &field.ty).collect();
        Self { names, words, pattern, bound, types }
    }

    /// How many words the fields have.
    fn count(&self) -> TokenStream {
        let (k, types) = (&self.names.private, &self.types);
        quote!((0 #(+ <#types as #k::Wire>::WORDS)*))
    }

    /// Statements that write the bound fields to the words from `start` on.
    fn write(&self, start: usize) -> TokenStream {
        let Self { names, words, bound, types, .. } = self;
        let (k, at) = (&names.private, names.fresh("at"));
        quote! {
            let #at: #k::usize = #start;
            #(
                #k::Wire::to_words(#bound, &mut #words[#at..#at + <#types as #k::Wire>::WORDS]);
                let #at = #at + <#types as #k::Wire>::WORDS;
            )*
            let _ = #at;
        }
    }

    /// Statements that read and bind the fields from the words from `start` on.
    fn read(&self, start: usize) -> TokenStream {
        let Self { names, words, bound, types, .. } = self;
        let (k, at) = (&names.private, names.fresh("at"));
        quote! {
            let #at: #k::usize = #start;
            #(
                let #bound = <#types as #k::Wire>::from_words(&#words[#at..])?;
                let #at = #at + <#types as #k::Wire>::WORDS;
            )*
            let _ = #at;
        }
    }

    fn schemas(&self) -> TokenStream {
        let (k, types) = (&self.names.private, &self.types);
        quote!(&[#(<#types as #k::Wire>::SCHEMA),*])
    }
}

pub fn derive(input: DeriveInput) -> Result<TokenStream> {
    let mut options = Options::of_attributes(&input.attrs)?;
    let krate = crate_option(&mut options)?;
    // `#[derive(Plain)]` of the same struct has it.
    options.text("format")?;
    options.finish("`crate`, and `format` for `#[derive(Plain)]`")?;
    let names = Names::new(&quote!(#input), krate)?;
    let k = &names.private;
    let name = &input.ident;
    let text = name.unraw().to_string();
    let words = &names.fresh("words");
    let (count, schema, to_words, from_words) = match &input.data {
        Data::Struct(data) => {
            let fields = Bound::new(&names, words, &data.fields);
            let (pattern, write, read) = (&fields.pattern, fields.write(0), fields.read(0));
            let schemas = fields.schemas();
            (
                fields.count(),
                quote!(#k::schema::of_struct(#text, #schemas)),
                quote!(let Self #pattern = self; #write),
                quote!(#read #k::Some(Self #pattern)),
            )
        }
        Data::Enum(data) if data.variants.is_empty() => {
            return Err(Error::new_spanned(name, "an enum without variants has no value to send"));
        }
        Data::Enum(data) => {
            let (mut schemas, mut write, mut read, mut counts) = (vec![], vec![], vec![], vec![]);
            for (tag, variant) in data.variants.iter().enumerate() {
                let (tag, ident) = (tag as u64, &variant.ident);
                let variant_text = ident.unraw().to_string();
                let fields = Bound::new(&names, words, &variant.fields);
                let (pattern, writes, reads) = (&fields.pattern, fields.write(1), fields.read(1));
                let types = fields.schemas();
                schemas.push(quote!((#variant_text, #types)));
                write.push(quote!(Self::#ident #pattern => { #words[0] = #tag; #writes }));
                read.push(quote!(#tag => { #reads #k::Some(Self::#ident #pattern) }));
                counts.push(fields.count());
            }
            (
                quote!(1 + #k::largest(&[#(#counts),*])),
                quote!(#k::schema::of_enum(#text, &[#(#schemas),*])),
                quote!(#words[..<Self as #k::Wire>::WORDS].fill(0); match self { #(#write)* }),
                quote!(match #words[0] { #(#read)* _ => #k::None }),
            )
        }
        Data::Union(_) => {
            return Err(Error::new_spanned(name, "a union cannot be sent: derive `Wire` on an enum"));
        }
    };
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(syn::parse_quote!(#k::Wire));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let allowed = allow_deprecated(&input);
    Ok(quote! {
        #[automatically_derived]
        #allowed
        impl #impl_generics #k::Wire for #name #type_generics #where_clause {
            const WORDS: #k::usize = #count;
            const SCHEMA: #k::u64 = #schema;
            #[inline]
            fn to_words(&self, #words: &mut [#k::u64]) {
                let _ = &#words;
                #to_words
            }
            #[inline]
            fn from_words(#words: &[#k::u64]) -> #k::Option<Self> {
                let _ = &#words;
                #from_words
            }
        }
    })
}
