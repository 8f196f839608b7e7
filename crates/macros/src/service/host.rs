//! The host's side of a service: handler traits and the dispatch to them.

use super::{Method, Parameter, ParameterKind};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ItemTrait;

/// The traits that a host implements and the dispatch to them.
pub(super) fn side(item: &ItemTrait, methods: &[Method]) -> TokenStream {
    let (visibility, name) = (&item.vis, &item.ident);
    let handler = format_ident!("{name}Handler");
    let async_handler = format_ident!("{name}AsyncHandler");
    let handler_docs = format!("Handles the calls of [`{name}`] on the host, on the server's thread.");
    let async_docs = format!("Handles the calls of [`{name}`] on the host as futures.");
    let blocking = methods.iter().map(|method| {
        let Method { docs, name, result, output, .. } = method;
        let parameters = method.parameters.iter().map(|Parameter { name, kind }| match kind {
            ParameterKind::Value(ty) => quote!(#name: #ty),
            ParameterKind::Str => quote!(#name: &str),
            ParameterKind::Bytes => quote!(#name: &[u8]),
        });
        let output = output.iter().map(|output| quote!(#output: &mut ::hostcall_device::__private::Output<'_>));
        let parameters = parameters.chain(output);
        quote!(#(#docs)* fn #name(&self, #(#parameters),*) -> Result<#result, ::hostcall_device::__private::CallError>;)
    });
    let futures = methods.iter().map(|method| {
        let Method { docs, name, result, output, .. } = method;
        let parameters = method.parameters.iter().map(|Parameter { name, kind }| match kind {
            ParameterKind::Value(ty) => quote!(#name: #ty),
            ParameterKind::Str => quote!(#name: ::hostcall_device::__private::String),
            ParameterKind::Bytes => quote!(#name: ::hostcall_device::__private::Vec<u8>),
        });
        let result = match output {
            Some(_) => quote!((#result, ::hostcall_device::__private::Vec<u8>)),
            None => result.clone(),
        };
        let output = output.iter().map(|output| {
            let capacity = format_ident!("{output}_capacity");
            quote!(#capacity: usize)
        });
        let parameters = parameters.chain(output);
        quote! {
            #(#docs)*
            fn #name(
                &self,
                #(#parameters),*
            ) -> impl ::core::future::Future<Output = Result<#result, ::hostcall_device::__private::CallError>> + Send;
        }
    });
    let dispatch = methods.iter().enumerate().map(|(index, method)| method.dispatch(index));
    let calls: Vec<_> = methods.iter().enumerate().filter_map(|(i, method)| method.calls(i)).collect();
    let runs: Vec<_> = methods.iter().enumerate().filter_map(|(i, method)| method.run(i)).collect();
    let async_dispatch = methods.iter().enumerate().map(|(index, method)| method.async_dispatch(index));
    quote! {
        #[doc = #handler_docs]
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #[allow(clippy::too_many_arguments, reason = "as many as the service's methods have")]
        #visibility trait #handler: Send + Sync + 'static {
            #(#blocking)*
        }

        #[doc = #async_docs]
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #[allow(clippy::too_many_arguments, reason = "as many as the service's methods have")]
        #visibility trait #async_handler: Send + Sync + 'static {
            #(#futures)*
        }

        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        const _: () = {
            use ::hostcall_device::__private as __hostcall;

            struct Served<H>(H);

            impl<H: #handler> __hostcall::Service for Served<H> {
                fn methods(&self) -> &'static [__hostcall::Method] {
                    #name::METHODS
                }
                fn call(
                    &self,
                    method: usize,
                    mut __request: __hostcall::Request<'_>,
                    __reply: &mut dyn __hostcall::Reply,
                ) -> Result<(), __hostcall::CallError> {
                    match method {
                        #(#dispatch)*
                        _ => Err(__hostcall::CallError::NoSuchService),
                    }
                }
                fn calls(&self, method: usize, __calls: &mut __hostcall::Calls<'_>) {
                    match method {
                        #(#calls)*
                        _ => __calls.one_by_one(self, method),
                    }
                }
                fn posts(&self, method: usize, __posts: &mut __hostcall::Posts<'_>) -> usize {
                    match method {
                        #(#runs)*
                        _ => {
                            __posts.one_by_one(self, method);
                            0
                        }
                    }
                }
            }

            struct AsyncServed<H>(__hostcall::Arc<H>);

            impl<H: #async_handler> __hostcall::AsyncService for AsyncServed<H> {
                fn methods(&self) -> &'static [__hostcall::Method] {
                    #name::METHODS
                }
                fn call(&self, method: usize, request: __hostcall::OwnedRequest) -> __hostcall::AsyncReply {
                    let __handler = __hostcall::Arc::clone(&self.0);
                    __hostcall::Box::pin(async move {
                        let mut __request = request.as_request();
                        match method {
                            #(#async_dispatch)*
                            _ => Err(__hostcall::CallError::NoSuchService),
                        }
                    })
                }
            }

            impl #name {
                /// The service that `handler` makes, to be registered with a server.
                pub fn serve(handler: impl #handler) -> impl __hostcall::Service {
                    Served(handler)
                }
                /// The service that `handler` makes, to be registered with a server.
                pub fn serve_async(handler: impl #async_handler) -> impl __hostcall::AsyncService {
                    AsyncServed(__hostcall::Arc::new(handler))
                }
            }
        };
    }
}

impl Method {
    /// Statements that bind the parameters by their names; `own` makes slices owned.
    fn decode(&self, own: bool) -> TokenStream {
        let (names, arguments) = (self.names(), self.arguments());
        let slices = self.parameters.iter().filter_map(|Parameter { name, kind }| {
            let (take, owned) = match kind {
                ParameterKind::Value(_) => return None,
                ParameterKind::Str => (quote!(take_str), quote!(__hostcall::String::from)),
                ParameterKind::Bytes => (quote!(take_slice), quote!(__hostcall::Vec::from)),
            };
            let slice = quote!(__request.#take(#name)?);
            Some(if own { quote!(let #name = #owned(#slice);) } else { quote!(let #name = #slice;) })
        });
        quote! {
            let (#(#names,)*) = __request.arguments::<#arguments>()?;
            #(#slices)*
            __request.finish()?;
        }
    }

    fn dispatch(&self, index: usize) -> TokenStream {
        let Method { name, result, .. } = self;
        let (decode, names) = (self.decode(false), self.names());
        let output = self
            .output
            .iter()
            .map(|_| quote!(&mut __hostcall::Output::new(__reply, __request.reply_capacity)));
        let arguments = names.iter().map(|name| quote!(#name)).chain(output);
        quote! {
            #index => {
                #decode
                let result: #result = self.0.#name(#(#arguments),*)?;
                let mut words = [0; <#result as __hostcall::Wire>::WORDS];
                __hostcall::Wire::to_words(&result, &mut words);
                __reply.words(&words);
                Ok(())
            }
        }
    }

    /// Whether every parameter travels as words, so that the handler can be called in a loop.
    fn is_plain(&self) -> bool {
        self.output.is_none()
            && self.parameters.iter().all(|parameter| matches!(parameter.kind, ParameterKind::Value(_)))
    }

    /// Calls of the method, in one loop without a choice of the method in it.
    fn calls(&self, index: usize) -> Option<TokenStream> {
        let Method { name, .. } = self;
        let (names, arguments) = (self.names(), self.arguments());
        self.is_plain().then(|| {
            quote! {
                #index => __calls.answer_each(|(#(#names,)*): #arguments| self.0.#name(#(#names),*)),
            }
        })
    }

    /// A run of posts, likewise.
    fn run(&self, index: usize) -> Option<TokenStream> {
        let Method { name, .. } = self;
        let (names, arguments) = (self.names(), self.arguments());
        self.is_plain().then(|| {
            quote! {
                #index => __posts.for_each_of(|(#(#names,)*): #arguments| {
                    let _ = self.0.#name(#(#names),*);
                }),
            }
        })
    }

    fn async_dispatch(&self, index: usize) -> TokenStream {
        let Method { name, result, .. } = self;
        let (decode, names) = (self.decode(true), self.names());
        let output = self.output.iter().map(|_| quote!(__request.reply_capacity));
        let arguments = names.iter().map(|name| quote!(#name)).chain(output);
        let bind = match &self.output {
            Some(_) => quote!(let (result, bytes): (#result, __hostcall::Vec<u8>)),
            None => quote!(let (bytes, result): (_, #result)),
        };
        let call = quote!(__handler.#name(#(#arguments),*).await?);
        let call = if self.output.is_some() { call } else { quote!((__hostcall::Vec::new(), #call)) };
        quote! {
            #index => {
                #decode
                #bind = #call;
                let mut words = __hostcall::Vec::from([0; <#result as __hostcall::Wire>::WORDS]);
                __hostcall::Wire::to_words(&result, &mut words);
                Ok(__hostcall::OwnedReply { words, bytes })
            }
        }
    }
}
