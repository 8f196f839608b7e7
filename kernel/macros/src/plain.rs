//! `#[derive(Plain)]`.

use crate::lints::allow_deprecated;
use crate::names::{Names, collect, crate_option};
use crate::options::Options;
use hostcall_format::{Format, MAX_ARGUMENTS};
use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use std::collections::HashSet;
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, GenericParam, LitStr, Member, Meta, Result, Token, Type,
    WherePredicate, parse_quote,
};

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
    check_layout(&input)?;
    let mut options = Options::of_attributes(&input.attrs)?;
    let krate = crate_option(&mut options)?;
    let format = options.text("format")?;
    options.finish("`crate` and `format`")?;
    let names = Names::new(&quote!(#input), krate)?;
    let k = &names.private;
    let text = name.unraw().to_string();
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let schemas = types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as #k::Plain>::SCHEMA));
    let fields = described(&names, &data.fields)?;
    let members: Vec<_> = data.fields.members().collect();
    let (fields_of, value) = (names.fresh("fields_of"), names.fresh("value"));
    let is_generic = !input.generics.params.is_empty();
    if let (true, Some(format)) = (is_generic, &format) {
        let message =
            "a generic struct has no format, since not all numbers can be written in all ways: leave it away";
        return Err(Error::new_spanned(format, message));
    }
    let check = format.as_ref().map(|format| check_format(&names, name, format, &data.fields)).transpose()?;
    let format = format.map_or(String::new(), |format| format.value());
    let (align, of_fields) = if is_generic {
        let first = first_of_generic(&input, &types)?;
        // Fields that are aligned alike have no padding between them or behind them.
        let bounds = types.iter().map(|ty| quote_spanned!(ty.span()=> #ty: #k::AlignedAs<#first>));
        let parameters = input.generics.type_params().map(|parameter| &parameter.ident);
        (quote!(<#first as #k::Plain>::Align), quote!(#(#bounds,)* #(#parameters: 'static,)*))
    } else {
        (quote!(#k::Aligned<{ ::core::mem::align_of::<#name>() }>), TokenStream::new())
    };
    let mut generics = input.generics.clone();
    generics
        .make_where_clause()
        .predicates
        .extend::<Punctuated<WherePredicate, Token![,]>>(parse_quote!(#of_fields));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let allowed = allow_deprecated(&input);
    let padding = format!(
        "`{text}` has padding, whose bytes would be no value: order the fields by size, the largest \
                           first, and fill what is left with a field such as `reserved: [u8; 4]`"
    );
    let alignment = format!(
        "`{text}` asks for more than the alignment of 256 bytes that a device's memory has: lower the `align` of \
         its `repr`"
    );
    let layout = format!(
        "`{text}` has no layout of C: an attribute below `#[derive(Plain)]` changes its `repr`; put the attribute \
         above the derive"
    );
    let layout_checks = (!is_generic).then(|| quote! {
        ::core::assert!(::core::mem::size_of::<#name>() == 0 #(+ ::core::mem::size_of::<#types>())*, #padding);
        ::core::assert!(::core::mem::align_of::<#name>() <= #k::BUFFER_ALIGN, #alignment);
        // The `repr` that the derive has seen may have been changed since, too.
        ::core::assert!(
            #k::lies_as_in_c(::core::mem::align_of::<#name>(), &[#([
                #k::offset_of!(#name, #members),
                ::core::mem::size_of::<#types>(),
                ::core::mem::align_of::<#types>(),
            ]),*]),
            #layout
        );
    });
    let [bytes, at] = ["bytes", "at"].map(|name| names.fresh(name));
    Ok(quote! {
        #allowed
        const _: () = {
            #layout_checks

            // The struct has these fields, of these types, and no others: an attribute below the derive may change
            // it after the derive has seen it.
            #[allow(
                dead_code,
                clippy::multiple_bound_locations,
                clippy::type_complexity,
                clippy::unused_unit,
                reason = "the compiler checks the types"
            )]
            fn #fields_of #impl_generics (#value: &#name #type_generics) -> (#(*const #types,)*) #where_clause {
                let #name { #(#members: _,)* } = #value;
                (#(&raw const #value.#members,)*)
            }

            // SAFETY: every field is `Plain`, the size or the fields' alignment says that there is no padding between
            // them, and the layout is C's, which is the same for these fields on every target.
            #[automatically_derived]
            unsafe impl #impl_generics #k::Plain for #name #type_generics #where_clause {
                const SCHEMA: #k::u64 =
                    #k::plain_schema(#text, ::core::mem::align_of::<Self>(), &[#(#schemas),*]);
                const SHARED: #k::bool = false #(|| <#types as #k::Plain>::SHARED)*;
                const TYPE: &'static #k::Type =
                    &#k::Type::Struct { name: #text, format: #format, fields: &[#(#fields),*] };
                type Align = #align;
                fn copy_bytes(#value: &Self, #bytes: &mut [#k::u8]) {
                    ::core::assert!(#bytes.len() == ::core::mem::size_of::<Self>(), "the bytes of a struct");
                    #({
                        let #at = #k::offset_of!(Self, #members);
                        let #bytes = &mut #bytes[#at..#at + ::core::mem::size_of::<#types>()];
                        <#types as #k::Plain>::copy_bytes(&#value.#members, #bytes);
                    })*
                }
            }

            #check
        };
    })
}

/// Attributes that leave a struct as it is.
const HARMLESS: [&str; 12] = [
    "repr",
    "doc",
    "derive",
    "hostcall",
    "allow",
    "warn",
    "deny",
    "forbid",
    "expect",
    "deprecated",
    "must_use",
    "non_exhaustive",
];

/// Checks what cannot be checked of a generic struct once it is compiled, and returns the type of a field, by which all others
/// are aligned.
fn first_of_generic<'a>(input: &DeriveInput, types: &[&'a Type]) -> Result<&'a Type> {
    for attribute in &input.attrs {
        // One that changes the struct would be seen in the layout of one that is not generic.
        if !HARMLESS.iter().any(|name| attribute.path().is_ident(name)) {
            let message = "of a generic `Plain` struct this attribute stands above the derive, which sees then what it \
                           leaves of the struct";
            return Err(Error::new_spanned(attribute, message));
        }
        if attribute.path().is_ident("repr") {
            attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("align") {
                    return Ok(());
                }
                Err(meta
                    .error("a generic `Plain` struct is aligned as its fields are: there might be padding"))
            })?;
        }
    }
    if let Some(lifetime) = input.generics.lifetimes().next() {
        let message =
            "a `Plain` struct holds no references: pass what they refer to as parameters of the kernel";
        return Err(Error::new_spanned(lifetime, message));
    }
    let parameters: Vec<_> = input
        .generics
        .params
        .iter()
        .map(|parameter| match parameter {
            GenericParam::Type(parameter) => parameter.ident.to_string(),
            GenericParam::Const(parameter) => parameter.ident.to_string(),
            GenericParam::Lifetime(_) => String::new(),
        })
        .collect();
    let is_of_parameters = |ty: &&&Type| {
        let mut names = HashSet::new();
        collect(quote!(#ty), &mut names);
        parameters.iter().any(|parameter| names.contains(parameter))
    };
    types.iter().find(is_of_parameters).copied().ok_or_else(|| {
        let message = "no field has a type of these parameters: leave them away";
        Error::new_spanned(&input.generics.params, message)
    })
}

/// What is said of the fields to readers that do not have the type.
fn described(names: &Names, fields: &Fields) -> Result<Vec<TokenStream>> {
    let k = &names.private;
    let described = fields.iter().zip(fields.members()).map(|(field, member)| {
        let mut options = Options::of_attributes(&field.attrs)?;
        let unit = options.text("unit")?.map_or(String::new(), |unit| unit.value());
        options.finish("`unit`")?;
        let text = match &member {
            Member::Named(name) => name.unraw().to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        };
        let ty = &field.ty;
        Ok(quote!(#k::Field {
            name: #text,
            unit: #unit,
            offset_bytes: #k::offset_of!(Self, #member) as #k::u32,
            ty: <#ty as #k::Plain>::TYPE,
        }))
    });
    described.collect()
}

/// Checks that a format has names of fields that are numbers, as the compiler checks it for `format!`.
fn check_format(names: &Names, of: &Ident, literal: &LitStr, fields: &Fields) -> Result<TokenStream> {
    let k = &names.private;
    let known =
        |name: &str| fields.iter().find(|field| field.ident.as_ref().is_some_and(|n| n.unraw() == name));
    let (mut used, mut unknown) = (Vec::<&syn::Field>::new(), None);
    let text = literal.value();
    let mut resolve = |name: &str| {
        let Some(field) = known(name) else {
            unknown = Some(name.to_owned());
            return None;
        };
        let at = used.iter().position(|other| std::ptr::eq(*other, field)).unwrap_or(used.len());
        if at == used.len() {
            used.push(field);
        }
        Some(at)
    };
    let parsed = Format::parse_with(&text, &mut |name, _| resolve(name));
    if let Some(name) = unknown {
        let message = format!(
            "there is no field `{name}`: a format names fields of the struct, as in `{{address:#x}}`"
        );
        return Err(Error::new_spanned(literal, message));
    }
    if used.len() > MAX_ARGUMENTS {
        return Err(Error::new_spanned(literal, "a format has 12 fields at most"));
    }
    parsed.map_err(|error| Error::new_spanned(literal, error))?;
    let idents: Vec<_> = used.iter().filter_map(|field| field.ident.as_ref()).collect();
    let types: Vec<_> = used.iter().map(|field| &field.ty).collect();
    let checks = types.iter().map(|ty| {
        quote_spanned!(ty.span()=> ::core::assert!(<#ty as #k::Plain>::TYPE.is_number(), "a format has fields that \
            are numbers: leave this one to the columns");)
    });
    let (check, value) = (names.fresh("check_format"), names.fresh("value"));
    Ok(quote! {
        #(#checks)*
        #[allow(dead_code, reason = "the compiler checks the format")]
        fn #check(#value: &#of) {
            let _ = ::core::format_args!(#literal, #(#idents = #value.#idents),*);
        }
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
