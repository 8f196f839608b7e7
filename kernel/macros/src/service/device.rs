//! The device's side of a service: the functions that kernels call.

use super::{Method, Parameter, ParameterKind, allowed};
use crate::names::Names;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ItemTrait;
use syn::ext::IdentExt;

/// The functions that a kernel calls. Those of services that come with hostcall are made with functions that
/// only the device crate can name: these of the module `builtin`.
pub(super) fn side(
    names: &Names,
    item: &ItemTrait,
    methods: &[Method],
    builtin: Option<&TokenStream>,
) -> TokenStream {
    let k = &names.private;
    let (visibility, name) = (&item.vis, &item.ident);
    let within = format_ident!("{}Within", name);
    let within_docs = format!("The methods of [`{name}`] with a deadline.");
    // A method's own parameter may have this name.
    let lane = Ident::new("lane", Span::mixed_site());
    let (mut plain, mut deadline) = (Vec::new(), Vec::new());
    for (index, method) in methods.iter().enumerate() {
        let functions = Functions::new(names, name, method, index, builtin);
        deadline.push(functions.waiting(&quote!(self,), functions.call()));
        plain.push(functions.waiting(&quote!(), functions.forward(&within)));
        if method.words_only() {
            deadline.push(functions.starting(&quote!(self,), &lane, functions.start(&lane)));
            plain.push(functions.starting(&quote!(), &lane, functions.forward_start(&within, &lane)));
        }
        if method.words_only() && !method.has_result {
            plain.push(functions.posting());
        }
    }
    let (shadows, allowed) = (Method::shadows(names, methods, &[&lane]), allowed(item));
    quote! {
        #[doc = #within_docs]
        #allowed
        #[derive(#k::Clone, #k::Copy, #k::Debug)]
        #visibility struct #within(#k::CallOptions);

        #allowed
        const _: () = {
            #shadows
            #[allow(clippy::too_many_arguments, reason = "as many as the service's methods have")]
            impl #name {
                /// Returns the methods with a deadline: `timeout_us` after the host sees the call it ends with
                /// `CallError::TimedOut`. 0 is no deadline.
                pub const fn within_us(timeout_us: #k::u32) -> #within {
                    #within(#k::within_us(timeout_us))
                }
                #(#plain)*
            }
            #[allow(clippy::too_many_arguments, reason = "as many as the service's methods have")]
            impl #within {
                #(#deadline)*
            }
        };
    }
}

/// What a method's functions are made from.
struct Functions<'a> {
    k: &'a TokenStream,
    service: &'a Ident,
    method: &'a Method,
    /// The module of the functions that make the calls.
    calls: TokenStream,
    /// Whether these are unsafe.
    calls_are_unsafe: bool,
    /// `unsafe`, if the method is.
    unsafety: Option<TokenStream>,
    /// The parameters' names, without the caller's.
    inputs: Vec<&'a Ident>,
    /// The same with their types.
    parameters: TokenStream,
    /// The tuple of the argument words.
    arguments: TokenStream,
    /// The method's entry in the service's table.
    described: TokenStream,
}

impl<'a> Functions<'a> {
    fn new(
        names: &'a Names,
        service: &'a Ident,
        method: &'a Method,
        index: usize,
        builtin: Option<&TokenStream>,
    ) -> Self {
        let k = &names.private;
        let calls = match (builtin, method.is_unsafe) {
            (Some(builtin), _) => builtin.clone(),
            (None, true) => quote!(#k::unchecked),
            (None, false) => quote!(#k),
        };
        let inputs: Vec<_> = method.names().into_iter().chain(&method.output).collect();
        let types = method.parameters.iter().map(|parameter| match &parameter.kind {
            ParameterKind::Value(ty) => quote!(#ty),
            ParameterKind::Str => quote!(&#k::str),
            ParameterKind::Bytes => quote!(&[#k::u8]),
        });
        let types = types.chain(method.output.iter().map(|_| quote!(&mut [#k::u8])));
        let parameters = quote!(#(#inputs: #types),*);
        let words = method.parameters.iter().map(|Parameter { name, kind }| match kind {
            ParameterKind::Value(_) => quote!(#name),
            ParameterKind::Str | ParameterKind::Bytes => quote!(#k::slice_len(#name.len())?),
        });
        Self {
            k,
            service,
            method,
            calls,
            calls_are_unsafe: method.is_unsafe && builtin.is_none(),
            unsafety: method.is_unsafe.then(|| quote!(unsafe)),
            inputs,
            parameters,
            arguments: quote!((#(#words,)*)),
            described: quote!(&#service::METHODS[#index]),
        }
    }

    /// A function that waits for the answer.
    fn waiting(&self, receiver: &TokenStream, body: TokenStream) -> TokenStream {
        let Self { k, unsafety, parameters, .. } = self;
        let Method { docs, name, result, output, .. } = self.method;
        let result = if output.is_some() { quote!((#result, #k::usize)) } else { quote!(#result) };
        quote! {
            #(#docs)*
            #[inline]
            pub #unsafety fn #name(#receiver #parameters) -> #k::Result<#result, #k::CallError> {
                #body
            }
        }
    }

    /// The call, with the options that `self` has.
    fn call(&self) -> TokenStream {
        let Self { k, method, calls, arguments, described, .. } = self;
        if method.words_only() {
            return self.made(quote!(#calls::call(#described, self.0, &#arguments)));
        }
        let slices = method.parameters.iter().filter_map(|Parameter { name, kind }| match kind {
            ParameterKind::Value(_) => None,
            ParameterKind::Str => Some(quote!(#name.as_bytes())),
            ParameterKind::Bytes => Some(quote!(#name)),
        });
        let (output, take_result) = match &method.output {
            Some(output) => (quote!(#output), quote!()),
            None => (quote!(&mut []), quote!(.map(#k::without_bytes))),
        };
        let slices = quote!(&[#(#slices),*]);
        let call = quote!(#calls::call_with_bytes(#described, self.0, &#arguments, #slices, #output));
        let call = self.made(call);
        quote!(#call #take_result)
    }

    /// The call of the function with options, with the default ones.
    fn forward(&self, within: &Ident) -> TokenStream {
        let Self { k, method: Method { name, is_unsafe, .. }, inputs, .. } = self;
        let forward = quote!(#within::#name(#within(#k::CallOptions::DEFAULT), #(#inputs),*));
        // SAFETY: the caller's promise to this function is the one to the other.
        if *is_unsafe { quote!(unsafe { #forward }) } else { forward }
    }

    /// A function that begins a call, which is waited for later.
    fn starting(&self, receiver: &TokenStream, lane: &Ident, body: TokenStream) -> TokenStream {
        let Self { k, service, method, unsafety, parameters, .. } = self;
        let (name, result, safety) = (method.name.unraw(), &method.result, self.safety());
        let start = format_ident!("start_{}", name);
        let docs = format!("Starts [`{service}::{name}`] for the lane that calls, to be waited for later.");
        quote! {
            #[doc = #docs]
            #safety
            #[inline]
            pub #unsafety fn #start(#receiver #lane: &#k::Lane, #parameters) -> #k::Pending<'_, #result> {
                #body
            }
        }
    }

    /// The beginning of a call, with the options that `self` has.
    fn start(&self, lane: &Ident) -> TokenStream {
        let Self { calls, arguments, described, .. } = self;
        self.made(quote!(#calls::start(#lane, #described, self.0, &#arguments)))
    }

    /// The same of the function with options, with the default ones.
    fn forward_start(&self, within: &Ident, lane: &Ident) -> TokenStream {
        let Self { k, method: Method { name, is_unsafe, .. }, inputs, .. } = self;
        let start = format_ident!("start_{}", name.unraw());
        let forward = quote!(#within::#start(#within(#k::CallOptions::DEFAULT), #lane, #(#inputs),*));
        // SAFETY: the caller's promise to this function is the one to the other.
        if *is_unsafe { quote!(unsafe { #forward }) } else { forward }
    }

    /// The function that posts.
    fn posting(&self) -> TokenStream {
        let Self { k, service, method, calls, unsafety, parameters, arguments, described, .. } = self;
        let (name, safety) = (method.name.unraw(), self.safety());
        let post = format_ident!("post_{}", name);
        let posted = self.made(quote!(#calls::post(#described, &#arguments)));
        let docs = format!("Posts [`{service}::{name}`]: returns at once, and nobody learns how it ended.");
        quote! {
            #[doc = #docs]
            #safety
            #[inline]
            pub #unsafety fn #post(#parameters) -> #k::Result<(), #k::CallError> {
                #posted
            }
        }
    }

    /// What an unsafe function says of itself whose documentation is not the method's.
    fn safety(&self) -> Option<TokenStream> {
        let Self { service, method: Method { name, is_unsafe, .. }, .. } = self;
        is_unsafe.then(|| {
            let text = format!("\n\n# Safety\nAs for [`{service}::{}`].", name.unraw());
            quote!(#[doc = #text])
        })
    }

    fn made(&self, call: TokenStream) -> TokenStream {
        // SAFETY: what the methods' pages ask for is all that their handlers trust.
        if self.calls_are_unsafe { quote!(unsafe { #call }) } else { call }
    }
}
