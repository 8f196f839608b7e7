//! What a kernel becomes.

use super::parameter::{located_at, of_launch, offset, take_mark};
use super::{Input, Instance, Kernel, LaunchOptions, Parameter, Shared};
use crate::names::{Names, shadows};
use crate::symbol;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Ident, Index, ItemFn, Pat, Safety};

/// `hostcall_device::kernel::PARAMETERS_IN_A_TUPLE`.
const PARAMETERS_IN_A_TUPLE: usize = 32;

/// The type of all parameters, as a kernel's constant has it.
fn all_markers(names: &Names, parameters: &[Parameter]) -> TokenStream {
    let (first, rest) = parameters.split_at(parameters.len().min(PARAMETERS_IN_A_TUPLE));
    let markers = first.iter().map(|parameter| &parameter.marker);
    let tuple = quote!((#(#markers,)*));
    if rest.is_empty() {
        return tuple;
    }
    let (k, rest) = (&names.private, all_markers(names, rest));
    quote!(#k::Joined<#tuple, #rest>)
}

/// The name of a parameter, if it has one.
fn input_name(input: &FnArg) -> Option<&Ident> {
    match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) => Some(&pattern.ident),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    }
}

/// Statements that export the kernel's entry for the device that the crate is compiled for. `block` is the type of the
/// argument block, and `run` calls the kernel with one.
fn entries(names: &Names, entry: &Ident, block: &TokenStream, run: &TokenStream) -> TokenStream {
    let k = &names.private;
    let [lane, launch, arguments] = ["lane", "launch", "arguments"].map(|name| names.fresh(name));
    quote! {
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn #entry(#lane: *mut #k::CpuLane, #arguments: *const #k::u8) -> #k::u32 {
            // SAFETY: the executor passes its lane and the argument block that `KernelInfo::schema` describes,
            // and keeps what the arguments refer to until the launch has ended.
            unsafe { #k::enter_kernel::<#block>(#lane, #arguments, #run) }
        }

        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn #entry(
            #launch: #k::LaunchParams,
            #arguments: #block,
        ) {
            // SAFETY: the host launches the entry only on a device that has the channel that `launch` describes,
            // with the argument block that `KernelInfo::schema` describes, and keeps what the arguments refer to
            // until the launch has ended.
            unsafe { #k::enter_kernel::<#block>(&#launch, #arguments, #run) }
        }

        // By address, since rustc passes structs to AMD's kernels in ways that hang on their fields.
        #[cfg(target_arch = "amdgpu")]
        #[unsafe(no_mangle)]
        pub unsafe extern "gpu-kernel" fn #entry(
            #launch: *const #k::LaunchParams,
            #arguments: *const #block,
        ) {
            // SAFETY: as for NVIDIA's entry; the host passes the addresses of both.
            unsafe { #k::enter_kernel::<#block>(&*#launch, #arguments.read(), #run) }
        }
    }
}

/// The kernel's function among what is made.
struct Declared<'a> {
    /// The constant's name.
    ident: &'a Ident,
    /// The constant's attributes.
    said: TokenStream,
    /// What stands in the constant before all else.
    within: TokenStream,
    /// The path by which the function is called.
    callee: TokenStream,
}

/// Puts the function into the constant, if that has its name, and leaves it beside it otherwise.
fn declare<'a>(k: &TokenStream, function: &'a ItemFn, instance: Option<&'a Instance>) -> Declared<'a> {
    let name = &function.sig.ident;
    // The constant, with all in it, has what is said of the kernel as an item, and the function the rest.
    let of_item = ["doc", "cfg", "deprecated", "allow"];
    let (outer, inner): (Vec<&Attribute>, Vec<&Attribute>) = function
        .attrs
        .iter()
        .partition(|attribute| of_item.iter().any(|name| attribute.path().is_ident(name)));
    match instance {
        None => {
            let (signature, body) = (&function.sig, &function.block);
            let inputs = function.sig.inputs.iter().filter_map(input_name);
            let shadows = shadows(k, inputs.filter(|input| input.unraw() != name.unraw()));
            let within = quote!(#shadows #(#inner)* #signature #body);
            Declared { ident: name, said: quote!(#(#outer)*), within, callee: quote!(#name) }
        }
        Some(Instance { name: ident, arguments }) => {
            let said = outer.iter().filter(|attribute| !attribute.path().is_ident("doc"));
            let text = format!("The kernel [`{name}`] with `{}`.", arguments.args.to_token_stream());
            let said = quote!(#[doc = #text] #(#said)*);
            Declared { ident, said, within: quote!(), callee: quote!(#name::#arguments) }
        }
    }
}

/// The call of the kernel's function, with the values of what a launch passes.
fn call(names: &Names, kernel: &Kernel<'_>, callee: &TokenStream, values: &[Ident]) -> TokenStream {
    let Kernel { function, parameters, shared, order, is_main, .. } = kernel;
    let (k, lane) = (&names.private, names.fresh("lane"));
    // The spans make rustc point at the parameter that is not as general as a launch needs it, or is no
    // lane.
    let at = |name: &Ident, span: Span| {
        let mut name = name.clone();
        name.set_span(name.span().located_at(span));
        name
    };
    let passed = order.iter().map(|input| match *input {
        Input::Passed(place) => at(&values[place], parameters[place].span).into_token_stream(),
        Input::Shared(place) => {
            let (Shared { ty, is_slice }, offset) = (&shared[place], offset(names, shared, place));
            let of = if *is_slice { quote!(workgroup_rest) } else { quote!(workgroup_at) };
            // SAFETY: `KernelInfo::workgroup_memory_bytes` has room for all of them, each at a place of its own.
            quote!(unsafe { #k::#of::<#ty>(#lane, const { #offset }) })
        }
    });
    let passed_lane = function.sig.inputs.first().map(|input| {
        let ty = match input {
            FnArg::Typed(typed) => typed.ty.span(),
            FnArg::Receiver(receiver) => receiver.span(),
        };
        let (k, lane) = (located_at(k, ty), at(&lane, ty));
        quote_spanned!(ty=> #k::lane_of_kernel(#lane))
    });
    let passed_lane = passed_lane.iter();
    let call = quote!(#callee(#(#passed_lane,)* #(#passed),*));
    if *is_main {
        // The span makes rustc point at the return type when it is neither `()` nor `i32`.
        quote_spanned!(function.sig.output.span()=> #k::finish_main(#call))
    } else if is_unsafe(function) {
        // SAFETY: who launched the kernel promised what it asks for, in `UnsafeKernel::assume_safe`.
        quote!(unsafe { #call })
    } else {
        call
    }
}

/// What stays of a function that `#[kernel]` refuses, or `#[main]`: itself, so that no import of what it uses is said to be
/// unused.
pub fn kept(item: TokenStream) -> Option<TokenStream> {
    let mut function: ItemFn = syn::parse2(item).ok()?;
    for input in &mut function.sig.inputs {
        let FnArg::Typed(_) = input else { return None };
        take_mark(input).ok()?;
    }
    let signature = &mut function.sig;
    (signature.constness, signature.asyncness, signature.abi) = (None, None, None);
    Some(quote!(#[allow(dead_code, reason = "the macro has refused it")] #function))
}

fn is_unsafe(function: &ItemFn) -> bool {
    matches!(function.sig.safety, Safety::Unsafe(_))
}

pub fn expand(names: &Names, kernel: &Kernel<'_>) -> TokenStream {
    let Kernel { function, instance, name, parameters, shared, options, .. } = kernel;
    let LaunchOptions { workgroups, lanes, workgroup_memory, max_lanes } = options;
    let (k, visibility) = (&names.private, &function.vis);
    let Declared { ident, said, within, callee } = declare(k, function, *instance);
    let markers = all_markers(names, parameters);

    let symbol = symbol::unique(name);
    let (entry, info) =
        (format_ident!("hostcall_kernel_{symbol}"), format_ident!("hostcall_kernel_info_{symbol}"));
    let [run, info_value, lane] = ["run", "info", "lane"].map(|name| names.fresh(name));
    let [block, block_value] = ["Block", "block"].map(|name| names.fresh(name));
    let checked: Vec<_> = parameters.iter().map(|parameter| &parameter.checked).collect();
    let places = (0..parameters.len()).map(Index::from);
    // The block is generic, since an item's types name their lifetimes, and those of parameters need not.
    let raws: Vec<_> = (0..parameters.len()).map(|i| names.fresh(&format!("raw_{i}"))).collect();
    let block_type = quote!(#block<#(<#checked as #k::KernelArg>::Raw),*>);
    let lifetime = of_launch();
    let value_types = parameters.iter().map(|parameter| &parameter.value);
    let values: Vec<_> = (0..parameters.len()).map(|i| names.fresh(&format!("value_{i}"))).collect();
    // What is typed is nothing else besides.
    let typed = (!shared.is_empty()).then(|| quote!(let #lane = &#k::lane_of_typed(#lane);));
    let (call, is_unsafe) = (call(names, kernel, &callee, &values), is_unsafe(function));
    let kind = if is_unsafe { quote!(UnsafeKernel) } else { quote!(Kernel) };
    // In the entries, which are unsafe. Values live as long as the lane: a type's name may say `'static`.
    let run_block = quote!(|#lane, #block_value: #block_type| {
        let _ = #block_value;
        #run(#lane, (#(#k::value_of_launch::<#checked>(#lane, #block_value.#places),)*))
    });
    let entries = entries(names, &entry, &block_type, &run_block);
    let variables = ["lane", "launch", "arguments", "block"].map(|name| names.fresh(name));
    let own_shadows = shadows(k, variables.iter().chain(&values));
    quote! {
        #said
        #[allow(
            non_upper_case_globals,
            non_camel_case_types,
            dead_code,
            improper_ctypes_definitions,
            clippy::type_complexity,
            clippy::too_many_arguments,
            reason = "the kernel's constant and its entry are made by a macro"
        )]
        #visibility const #ident: #k::#kind<#markers> = {
            #within

            {
                #own_shadows
                // Its arguments live for any lifetime that the caller chooses, and so must the kernel's parameters.
                #[inline(always)]
                fn #run<#lifetime>(
                    #lane: &#lifetime #k::Lane,
                    (#(#values,)*): (#(#value_types,)*),
                ) {
                    let _ = #lane;
                    #typed
                    #call
                }

                /// The arguments as C lays them out.
                #[repr(C)]
                #[derive(::core::clone::Clone, ::core::marker::Copy)]
                pub struct #block<#(#raws),*>(#(#raws),*);

                const #info_value: #k::KernelInfo = #k::kernel_info::<#block_type>(
                    ::core::concat!(::core::module_path!(), "::", #name),
                    #k::kernel_schema(&[#(<#checked as #k::KernelArg>::SCHEMA),*], #is_unsafe),
                    #workgroups,
                    #lanes,
                    #workgroup_memory,
                    #max_lanes,
                );

                #[unsafe(no_mangle)]
                pub static #info: #k::KernelInfo = #info_value;

                #entries

                // SAFETY: the entry and the info are those of a function with these parameters.
                unsafe {
                    #k::#kind::new(
                        ::core::concat!(::core::module_path!(), "::", #name),
                        #info_value,
                        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
                        #entry,
                    )
                }
            }
        };
    }
}
