//! `#[kernel]` and `#[main]`.

use crate::options::Options;
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, FnArg, Ident, ItemFn, Lit, Pat, Result, ReturnType, Type};

/// What a kernel's expansion is made from.
struct Kernel {
    function: ItemFn,
    name: String,
    parameters: Vec<Parameter>,
    /// Calls the body for `lane`.
    body: TokenStream,
    workgroups: TokenStream,
    lanes: TokenStream,
    workgroup_memory: TokenStream,
    max_lanes: TokenStream,
}

/// A parameter after the lane: the name of its field in the argument block and its marker type.
struct Parameter {
    field: Ident,
    marker: TokenStream,
}

pub fn kernel(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut options = Options::parse(options)?;
    let function: ItemFn = syn::parse2(item)?;
    let name = match options.value("name")? {
        None => function.sig.ident.to_string(),
        Some(name) => kernel_name(&name)?,
    };
    let workgroup_memory = or_default(options.value("workgroup_memory")?, 0);
    let max_lanes = or_default(options.value("max_lanes")?, 0);
    options.finish("`name`, `workgroup_memory` and `max_lanes`")?;
    check_function(&function)?;
    if !matches!(function.sig.output, ReturnType::Default) {
        let message = "a kernel returns nothing: write results through a `&[Global<T>]` parameter";
        return Err(Error::new_spanned(&function.sig.output, message));
    }
    if function.sig.inputs.is_empty() {
        return Err(Error::new_spanned(&function.sig.ident, "a kernel's first parameter is `lane: &Lane`"));
    }
    let parameters = function.sig.inputs.iter().skip(1).enumerate();
    let parameters = parameters.map(|(i, input)| parameter(i, input)).collect::<Result<Vec<_>>>()?;
    let ident = &function.sig.ident;
    let values = parameters.iter().map(|Parameter { field, marker }| {
        // SAFETY: the entry that this becomes a part of got the argument block that the kernel's schema describes.
        quote!(unsafe { <#marker as __hostcall::KernelArg>::from_raw(arguments.#field) })
    });
    let body = quote!(#ident(lane, #(#values),*));
    let zero = quote!(0);
    expand(Kernel {
        name,
        parameters,
        body,
        workgroups: zero.clone(),
        lanes: zero,
        workgroup_memory,
        max_lanes,
        function,
    })
}

pub fn main(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut options = Options::parse(options)?;
    let function: ItemFn = syn::parse2(item)?;
    let workgroups = or_default(options.value("workgroups")?, 1);
    let lanes = or_default(options.value("lanes")?, 1);
    let workgroup_memory = or_default(options.value("workgroup_memory")?, 0);
    let max_lanes = or_default(options.value("max_lanes")?, 0);
    options.finish("`workgroups`, `lanes`, `workgroup_memory` and `max_lanes`")?;
    check_function(&function)?;
    let ident = &function.sig.ident;
    let call = match function.sig.inputs.len() {
        0 => quote!(#ident()),
        1 => quote!(#ident(lane)),
        _ => {
            let message = "`main` takes nothing or `lane: &Lane`; its arguments are in the environment";
            return Err(Error::new_spanned(&function.sig.inputs, message));
        }
    };
    // The span makes rustc point at the return type when it is neither `()` nor `i32`.
    let body = quote_spanned!(function.sig.output.span()=> __hostcall::finish_main(#call));
    let name = "main".to_owned(); // `hostcall_abi::launch::MAIN_KERNEL`
    expand(Kernel {
        name,
        parameters: vec![],
        body,
        workgroups,
        lanes,
        workgroup_memory,
        max_lanes,
        function,
    })
}

fn or_default(value: Option<Expr>, default: u64) -> TokenStream {
    value.map_or_else(|| quote!(#default), |value| quote!(#value))
}

/// The text of the `name` option, which becomes part of a symbol.
fn kernel_name(value: &Expr) -> Result<String> {
    if let Expr::Lit(literal) = value
        && let Lit::Str(text) = &literal.lit
    {
        let name = text.value();
        let symbol = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if symbol && !name.starts_with("info_") {
            return Ok(name);
        }
    }
    let message =
        "a kernel's name is a string of ASCII letters, digits and `_` that does not start with `info_`";
    Err(Error::new_spanned(value, message))
}

fn check_function(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
        return Err(Error::new_spanned(&signature.generics, "a kernel cannot be generic: it is one symbol"));
    }
    if let Some(token) = &signature.asyncness {
        return Err(Error::new_spanned(token, "a kernel cannot be `async`"));
    }
    if let Some(token) = &signature.variadic {
        return Err(Error::new_spanned(token, "a kernel cannot be variadic"));
    }
    if let Some(token) = &signature.abi {
        return Err(Error::new_spanned(token, "leave the ABI away: the macro exports the right entry"));
    }
    match signature.inputs.first() {
        None => Ok(()),
        Some(FnArg::Typed(lane)) if matches!(&*lane.ty, Type::Reference(r) if r.mutability.is_none()) => {
            Ok(())
        }
        Some(other) => Err(Error::new_spanned(other, "the first parameter is `lane: &Lane`")),
    }
}

fn parameter(index: usize, input: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(input, "a kernel cannot take `self`"));
    };
    let field = match &*typed.pat {
        Pat::Ident(pattern) => pattern.ident.clone(),
        _ => format_ident!("argument_{index}"),
    };
    let marker = match &*typed.ty {
        Type::Reference(reference) if reference.mutability.is_some() => {
            let message = "all lanes share the arguments: take `&[Global<T>]` and write with `set`";
            return Err(Error::new_spanned(reference, message));
        }
        Type::Reference(reference) => match &*reference.elem {
            Type::Slice(slice) => {
                let element = &slice.elem;
                quote_spanned!(element.span()=> ::hostcall_device::kernel::Slice<#element>)
            }
            element => quote_spanned!(element.span()=> ::hostcall_device::kernel::Ref<#element>),
        },
        scalar => quote!(#scalar),
    };
    Ok(Parameter { field, marker })
}

fn expand(kernel: Kernel) -> Result<TokenStream> {
    let Kernel { function, name, parameters, body, workgroups, lanes, workgroup_memory, max_lanes } = kernel;
    let (visibility, ident) = (&function.vis, &function.sig.ident);
    let (docs, attributes): (Vec<&Attribute>, Vec<&Attribute>) =
        function.attrs.iter().partition(|attribute| attribute.path().is_ident("doc"));
    let (signature, block) = (&function.sig, &function.block);
    let fields: Vec<_> = parameters.iter().map(|parameter| &parameter.field).collect();
    let markers: Vec<_> = parameters.iter().map(|parameter| &parameter.marker).collect();
    let entry = format_ident!("hostcall_kernel_{name}");
    let info = format_ident!("hostcall_kernel_info_{name}");
    let enter = quote! {
        let _ = &arguments;
        // SAFETY: the host launches the entry only on a device that has the channel that `launch` describes,
        // with arguments that `KernelInfo::schema` describes and that outlive the launch.
        unsafe { __hostcall::enter_gpu(launch, |lane| #body) }
    };
    let gpu_entries = quote! {
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn #entry(launch: __hostcall::LaunchParams, arguments: HostcallArguments) {
            #enter
        }

        // By address, since rustc passes structs to AMD's kernels in ways that hang on their fields.
        #[cfg(target_arch = "amdgpu")]
        #[unsafe(no_mangle)]
        pub unsafe extern "gpu-kernel" fn #entry(
            launch: *const __hostcall::LaunchParams,
            arguments: *const HostcallArguments,
        ) {
            // SAFETY: the host passes the addresses of both, which outlive the launch.
            let (launch, arguments) = unsafe { (launch.read(), arguments.read()) };
            #enter
        }
    };
    Ok(quote! {
        #(#docs)*
        #[allow(
            non_upper_case_globals,
            dead_code,
            unsafe_code,
            improper_ctypes_definitions,
            clippy::undocumented_unsafe_blocks,
            clippy::missing_safety_doc,
            clippy::type_complexity,
            reason = "the kernel's constant and its entry are made by a macro, whose safety `hostcall_device` argues"
        )]
        #visibility const #ident: ::hostcall_device::kernel::Kernel<(#(#markers,)*)> = {
            use ::hostcall_device::__private as __hostcall;

            #(#attributes)*
            #signature #block

            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct HostcallArguments {
                #(#fields: <#markers as __hostcall::KernelArg>::Raw,)*
            }

            const INFO: __hostcall::KernelInfo = __hostcall::KernelInfo {
                magic: __hostcall::MAGIC,
                abi_version: __hostcall::ABI_VERSION as u64,
                schema: __hostcall::kernel_schema(&[#(<#markers as __hostcall::KernelArg>::SCHEMA),*]),
                argument_bytes: size_of::<HostcallArguments>() as u64,
                default_workgroups: #workgroups,
                default_lanes: #lanes,
                workgroup_memory_bytes: #workgroup_memory,
                max_lanes: #max_lanes,
            };

            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "the symbol has the kernel's name in it")]
            pub static #info: __hostcall::KernelInfo = INFO;

            #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn #entry(lane: *mut __hostcall::CpuLane, arguments: *const u8) -> u32 {
                // SAFETY: the executor passes the argument block that `KernelInfo::schema` describes.
                let arguments = unsafe { arguments.cast::<HostcallArguments>().read_unaligned() };
                let _ = &arguments;
                // SAFETY: the executor passes its lane, on the lane's stack; the arguments outlive the launch.
                unsafe { __hostcall::enter_cpu(lane, |lane| #body) }
            }
            #gpu_entries

            __hostcall::Kernel::new(
                #name,
                INFO,
                #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
                #entry,
            )
        };
    })
}
