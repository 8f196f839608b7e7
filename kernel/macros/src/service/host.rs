//! The host's side of a service: handler traits and the dispatch to them.

use super::{Method, Parameter, ParameterKind, allowed};
use crate::names::Names;
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::ItemTrait;

/// Names of the variables and types of the dispatch.
struct Locals {
    handler: Ident,
    request: Ident,
    reply: Ident,
    result: Ident,
    bytes: Ident,
    words: Ident,
    method: Ident,
    many: Ident,
    handler_type: Ident,
    served: Ident,
    async_served: Ident,
    gathered_served: Ident,
}

impl Locals {
    fn new(names: &Names) -> Self {
        Self {
            handler: names.fresh("handler"),
            request: names.fresh("request"),
            reply: names.fresh("reply"),
            result: names.fresh("result"),
            bytes: names.fresh("bytes"),
            words: names.fresh("words"),
            method: names.fresh("method"),
            many: names.fresh("many"),
            handler_type: names.fresh("Handler"),
            served: names.fresh("Served"),
            async_served: names.fresh("AsyncServed"),
            gathered_served: names.fresh("GatheredServed"),
        }
    }
}

impl Locals {
    fn variables(&self) -> [&Ident; 8] {
        [
            &self.handler,
            &self.request,
            &self.reply,
            &self.result,
            &self.bytes,
            &self.words,
            &self.method,
            &self.many,
        ]
    }
}

/// The traits that a host implements and the dispatch to them.
pub(super) fn side(names: &Names, item: &ItemTrait, methods: &[Method]) -> TokenStream {
    let k = &names.private;
    let (visibility, name) = (&item.vis, &item.ident);
    let handler_trait = format_ident!("{}Handler", name);
    let async_trait = format_ident!("{}AsyncHandler", name);
    let handler_docs = format!("Handles the calls of [`{name}`] on the host, on a thread of the server.");
    let async_docs = format!("Handles the calls of [`{name}`] on the host as futures.");
    let blocking = methods.iter().map(|method| method.handler(names));
    let futures = methods.iter().map(|method| method.async_handler(names));

    let locals = &Locals::new(names);
    let Locals { handler, request, reply, method, many, handler_type, served, async_served, .. } = locals;
    let each = |make: &dyn Fn(&Method, usize) -> TokenStream| -> Vec<_> {
        methods.iter().enumerate().map(|(index, method)| make(method, index)).collect()
    };
    let dispatch = each(&|method, index| method.dispatch(names, locals, &handler_trait, index));
    let calls = each(&|method, index| method.calls(names, locals, &handler_trait, index));
    let posts = each(&|method, index| method.posts(names, locals, &handler_trait, index));
    let async_dispatch = each(&|method, index| method.async_dispatch(names, locals, &async_trait, index));
    let gathered = gathered(names, item, methods, locals);
    let (shadows, allowed) = (Method::shadows(names, methods, &locals.variables()), allowed(item));
    quote! {
        #[doc = #handler_docs]
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #allowed
        #[allow(clippy::too_many_arguments, reason = "as many as the service's methods have")]
        #visibility trait #handler_trait: #k::Send + #k::Sync + 'static {
            #(#blocking)*
        }

        #[doc = #async_docs]
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #allowed
        #[allow(clippy::too_many_arguments, reason = "as many as the service's methods have")]
        #visibility trait #async_trait: #k::Send + #k::Sync + 'static {
            #(#futures)*
        }

        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #allowed
        #[allow(non_camel_case_types, reason = "names that no user's name meets")]
        const _: () = {
            #shadows

            struct #served<#handler_type>(#handler_type);

            impl<#handler_type: #handler_trait> #k::Service for #served<#handler_type> {
                fn methods(&self) -> &'static [#k::Method] {
                    #name::METHODS
                }
                fn call(
                    &self,
                    #method: #k::usize,
                    mut #request: #k::Request<'_>,
                    #reply: &mut dyn #k::Reply,
                ) -> #k::Result<(), #k::CallError> {
                    let #handler = &self.0;
                    match #method {
                        #(#dispatch)*
                        _ => #k::Err(#k::CallError::NoSuchService),
                    }
                }
                fn calls(&self, #method: #k::usize, #many: &mut #k::Calls<'_>) {
                    let #handler = &self.0;
                    match #method {
                        #(#calls)*
                        _ => {
                            let _ = #handler;
                            #many.one_by_one(self, #method);
                        }
                    }
                }
                fn posts(&self, #method: #k::usize, #many: &mut #k::Posts<'_>) -> #k::usize {
                    let #handler = &self.0;
                    match #method {
                        #(#posts)*
                        _ => {
                            let _ = #handler;
                            #many.one_by_one(self, #method);
                            0
                        }
                    }
                }
            }

            struct #async_served<#handler_type>(#k::Arc<#handler_type>);

            impl<#handler_type: #async_trait> #k::AsyncService for #async_served<#handler_type> {
                fn methods(&self) -> &'static [#k::Method] {
                    #name::METHODS
                }
                fn call(&self, #method: #k::usize, #request: #k::OwnedRequest) -> #k::AsyncReply {
                    let #handler = #k::Arc::clone(&self.0);
                    #k::Box::pin(async move {
                        let mut #request = #request.as_request();
                        match #method {
                            #(#async_dispatch)*
                            _ => #k::Err(#k::CallError::NoSuchService),
                        }
                    })
                }
            }

            impl #name {
                /// Makes the service that a server registers from its handler.
                pub fn serve(#handler: impl #handler_trait) -> impl #k::Service {
                    #served(#handler)
                }
                /// Makes the service that a server registers from its handler, whose methods are futures.
                pub fn serve_async(#handler: impl #async_trait) -> impl #k::AsyncService {
                    #async_served(#k::Arc::new(#handler))
                }
            }
        };
        #gathered
    }
}

/// The trait of handlers that get batches of calls, and the dispatch to it. Nothing where a method has bytes, which do not
/// gather.
fn gathered(names: &Names, item: &ItemTrait, methods: &[Method], locals: &Locals) -> TokenStream {
    if !methods.iter().all(Method::words_only) {
        return quote!();
    }
    let k = &names.private;
    let (visibility, name) = (&item.vis, &item.ident);
    let gathered_trait = format_ident!("{}GatheredHandler", name);
    let docs = format!("Handles the calls of [`{name}`] on the host, those of all waves that wait at once.");
    let Locals { handler, method, many, handler_type, gathered_served, .. } = locals;
    let handlers = methods.iter().map(|method| method.gathered_handler(names));
    let dispatch = methods.iter().enumerate().map(|(index, method)| {
        let name = &method.name;
        quote! {
            #index => #gathered_trait::#name(&*#handler, #k::Gathered::new(#many)).await,
        }
    });
    let allowed = allowed(item);
    quote! {
        #[doc = #docs]
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #allowed
        #visibility trait #gathered_trait: #k::Send + #k::Sync + 'static {
            #(#handlers)*
        }

        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #allowed
        #[allow(non_camel_case_types, reason = "names that no user's name meets")]
        const _: () = {
            struct #gathered_served<#handler_type>(#k::Arc<#handler_type>);

            impl<#handler_type: #gathered_trait> #k::GatheredService for #gathered_served<#handler_type> {
                fn methods(&self) -> &'static [#k::Method] {
                    #name::METHODS
                }
                fn gathered(&self, #method: #k::usize, #many: #k::GatheredCalls) -> #k::BatchFuture {
                    let #handler = #k::Arc::clone(&self.0);
                    #k::Box::pin(async move {
                        match #method {
                            #(#dispatch)*
                            _ => #many.fail(#k::CallError::NoSuchService),
                        }
                    })
                }
            }

            impl #name {
                /// Makes the service that a server registers from its handler, whose methods get batches of calls.
                pub fn serve_gathered(#handler: impl #gathered_trait) -> impl #k::GatheredService {
                    #gathered_served(#k::Arc::new(#handler))
                }
            }
        };
    }
}

impl Method {
    /// The method of the handler's trait.
    fn handler(&self, names: &Names) -> TokenStream {
        let k = &names.private;
        let Method { docs, name, result, .. } = self;
        let caller = self.caller.iter().map(|caller| quote!(#caller: &#k::Caller));
        let parameters = self.parameters.iter().map(|Parameter { name, kind }| match kind {
            ParameterKind::Value(ty) => quote!(#name: #ty),
            ParameterKind::Str => quote!(#name: &#k::str),
            ParameterKind::Bytes => quote!(#name: &[#k::u8]),
        });
        let output = self.output.iter().map(|output| quote!(#output: &mut #k::Output<'_>));
        let parameters = caller.chain(parameters).chain(output);
        quote!(#(#docs)* fn #name(&self, #(#parameters),*) -> #k::Result<#result, #k::CallError>;)
    }

    /// The method of the async handler's trait.
    fn async_handler(&self, names: &Names) -> TokenStream {
        let k = &names.private;
        let Method { docs, name, result, output, .. } = self;
        let caller = self.caller.iter().map(|caller| quote!(#caller: #k::Caller));
        let parameters = self.parameters.iter().map(|Parameter { name, kind }| match kind {
            ParameterKind::Value(ty) => quote!(#name: #ty),
            ParameterKind::Str => quote!(#name: #k::String),
            ParameterKind::Bytes => quote!(#name: #k::Vec<#k::u8>),
        });
        let result = match output {
            Some(_) => quote!((#result, #k::Vec<#k::u8>)),
            None => result.clone(),
        };
        let capacity = output.iter().map(|output| {
            let mut capacity = format_ident!("{}_capacity", output);
            while self.parameters.iter().any(|parameter| parameter.name == capacity) {
                capacity = format_ident!("{}_", capacity);
            }
            quote!(#capacity: #k::usize)
        });
        let parameters = caller.chain(parameters).chain(capacity);
        quote! {
            #(#docs)*
            fn #name(
                &self,
                #(#parameters),*
            ) -> impl #k::Future<Output = #k::Result<#result, #k::CallError>> + #k::Send;
        }
    }

    /// The method of the trait of handlers that get batches.
    fn gathered_handler(&self, names: &Names) -> TokenStream {
        let k = &names.private;
        let Method { docs, name, result, .. } = self;
        // One argument is itself, and several are a tuple.
        let arguments = match &*self.parameters {
            [Parameter { kind: ParameterKind::Value(ty), .. }] => quote!(#ty),
            _ => self.arguments(names),
        };
        quote! {
            #(#docs)*
            fn #name(&self, calls: #k::Gathered<#arguments, #result>) -> impl #k::Future<Output = ()> + #k::Send;
        }
    }

    /// Statements that bind the parameters by their names; `own` makes slices owned.
    fn decode(&self, names: &Names, locals: &Locals, own: bool) -> TokenStream {
        let k = &names.private;
        let request = &locals.request;
        let (inputs, arguments) = (self.names(), self.arguments(names));
        let slices = self.parameters.iter().filter_map(|Parameter { name, kind }| {
            let (take, owned) = match kind {
                ParameterKind::Value(_) => return None,
                ParameterKind::Str => (quote!(take_str), quote!(#k::String::from)),
                ParameterKind::Bytes => (quote!(take_slice), quote!(#k::Vec::from)),
            };
            let slice = quote!(#request.#take(#name)?);
            Some(if own { quote!(let #name = #owned(#slice);) } else { quote!(let #name = #slice;) })
        });
        quote! {
            let (#(#inputs,)*) = #request.arguments::<#arguments>()?;
            #(#slices)*
            #request.finish()?;
        }
    }

    fn dispatch(&self, names: &Names, locals: &Locals, handler_trait: &Ident, index: usize) -> TokenStream {
        let k = &names.private;
        let Method { name, result: result_type, .. } = self;
        let Locals { handler, request, reply, result, words, .. } = locals;
        let (decode, inputs) = (self.decode(names, locals, false), self.names());
        let caller = self.caller.iter().map(|_| quote!(&#request.caller));
        let output =
            self.output.iter().map(|_| quote!(&mut #k::Output::new(#reply, #request.reply_capacity)));
        let arguments = caller.chain(inputs.iter().map(|name| quote!(#name))).chain(output);
        quote! {
            #index => {
                #decode
                let #result: #result_type = #handler_trait::#name(#handler, #(#arguments),*)?;
                let mut #words = [0; <#result_type as #k::Wire>::WORDS];
                #k::Wire::to_words(&#result, &mut #words);
                #reply.words(&#words);
                #k::Ok(())
            }
        }
    }

    /// Calls of the method, in one loop without a choice of the method in it.
    fn calls(&self, names: &Names, locals: &Locals, handler_trait: &Ident, index: usize) -> TokenStream {
        let Locals { handler, many, .. } = locals;
        let (name, inputs, arguments) = (&self.name, self.names(), self.arguments(names));
        if !self.words_only() {
            return quote!();
        }
        match &self.caller {
            None => quote! {
                #index => #many.answer_each(
                    |(#(#inputs,)*): #arguments| #handler_trait::#name(#handler, #(#inputs),*)
                ),
            },
            Some(caller) => quote! {
                #index => #many.answer_each_from(
                    |#caller, (#(#inputs,)*): #arguments| #handler_trait::#name(#handler, #caller, #(#inputs),*)
                ),
            },
        }
    }

    /// A run of posts, likewise.
    fn posts(&self, names: &Names, locals: &Locals, handler_trait: &Ident, index: usize) -> TokenStream {
        let Locals { handler, many, .. } = locals;
        let (name, inputs, arguments) = (&self.name, self.names(), self.arguments(names));
        if !self.words_only() {
            return quote!();
        }
        match &self.caller {
            None => quote! {
                #index => #many.for_each_of(|(#(#inputs,)*): #arguments| {
                    let _ = #handler_trait::#name(#handler, #(#inputs),*);
                }),
            },
            Some(caller) => quote! {
                #index => #many.for_each_of_from(|#caller, (#(#inputs,)*): #arguments| {
                    let _ = #handler_trait::#name(#handler, #caller, #(#inputs),*);
                }),
            },
        }
    }

    fn async_dispatch(
        &self,
        names: &Names,
        locals: &Locals,
        handler_trait: &Ident,
        index: usize,
    ) -> TokenStream {
        let k = &names.private;
        let Method { name, result: result_type, .. } = self;
        let Locals { handler, request, result, bytes, words, .. } = locals;
        let (decode, inputs) = (self.decode(names, locals, true), self.names());
        let caller = self.caller.iter().map(|_| quote!(#request.caller));
        let output = self.output.iter().map(|_| quote!(#request.reply_capacity));
        let arguments = caller.chain(inputs.iter().map(|name| quote!(#name))).chain(output);
        let call = quote!(#handler_trait::#name(&*#handler, #(#arguments),*).await?);
        let (bind, call) = match &self.output {
            Some(_) => (quote!(let (#result, #bytes): (#result_type, #k::Vec<#k::u8>)), call),
            None => (quote!(let (#bytes, #result): (_, #result_type)), quote!((#k::Vec::new(), #call))),
        };
        quote! {
            #index => {
                #decode
                #bind = #call;
                let mut #words = #k::Vec::from([0; <#result_type as #k::Wire>::WORDS]);
                #k::Wire::to_words(&#result, &mut #words);
                #k::Ok(#k::OwnedReply { words: #words, bytes: #bytes })
            }
        }
    }
}
