//! `#[kernel]` and `#[main]`.

use crate::names::{Names, crate_option, shadows};
use crate::options::Options;
use crate::symbol;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, FnArg, GenericParam, Ident, ItemFn, Lifetime, Lit, Pat, Result, ReturnType,
    Safety, Type,
};

/// Most parameters after the lane: `hostcall_device::kernel::Parameters` is implemented for so many.
const MAX_PARAMETERS: usize = 16;

/// What a kernel's expansion is made from.
struct Kernel {
    function: ItemFn,
    name: String,
    parameters: Vec<Parameter>,
    /// What it has in workgroup memory.
    shared: Vec<Shared>,
    /// What it takes, in the order of its signature.
    order: Vec<Input>,
    /// Whether the program's exit code comes from what the function returns.
    is_main: bool,
    options: LaunchOptions,
}

/// The options that end up in `KernelInfo`, each an expression.
struct LaunchOptions {
    workgroups: TokenStream,
    lanes: TokenStream,
    workgroup_memory: TokenStream,
    max_lanes: TokenStream,
}

/// A parameter after the lane.
struct Parameter {
    /// The type that stands for it in the kernel's tuple of parameters.
    marker: TokenStream,
    /// The same type if a kernel can take it. Else it is an error that points at the type: always the same, so that the
    /// compiler tells of it once.
    checked: TokenStream,
    /// The type of the values that the kernel's function gets, for a launch's lifetime.
    value: TokenStream,
    span: Span,
}

/// A parameter marked `#[workgroup]`.
struct Shared {
    /// The type of what lies there, or of the elements of what a launch asks for.
    ty: Type,
    is_slice: bool,
}

/// A parameter after the lane, by its place among those of its kind.
enum Input {
    Passed(usize),
    Shared(usize),
}

pub fn kernel(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut options = Options::parse(options)?;
    let krate = crate_option(&mut options)?;
    let mut function: ItemFn = syn::parse2(item)?;
    let name = match options.value("name")? {
        None => own_name(&function.sig.ident)?,
        Some(name) => given_name(&name)?,
    };
    let workgroup_memory = options.value("workgroup_memory")?;
    let max_lanes = or_default(options.value("max_lanes")?, 0);
    options.finish("`name`, `workgroup_memory`, `max_lanes` and `crate`")?;
    check_function(&function)?;
    if !matches!(function.sig.output, ReturnType::Default) {
        let message = "a kernel returns nothing: write results through a `&[Global<T>]` parameter";
        return Err(Error::new_spanned(&function.sig.output, message));
    }
    if function.sig.inputs.is_empty() {
        return Err(Error::new_spanned(&function.sig.ident, "a kernel's first parameter is `lane: &Lane`"));
    }
    let names = Names::new(&quote!(#function), krate)?;
    let (mut parameters, mut shared, mut order) = (Vec::new(), Vec::new(), Vec::new());
    for input in function.sig.inputs.iter_mut().skip(1) {
        if take_mark(input)? {
            order.push(Input::Shared(shared.len()));
            shared.push(shared_parameter(input, shared.last())?);
        } else {
            order.push(Input::Passed(parameters.len()));
            parameters.push(parameter(&names, &of_launch(), input)?);
        }
    }
    if let (Some(bytes), false) = (&workgroup_memory, shared.is_empty()) {
        let message = "the kernel's workgroup memory is its parameters marked `#[workgroup]`: leave the option away, \
                       and add a parameter for these bytes";
        return Err(Error::new_spanned(bytes, message));
    }
    let workgroup_memory = match shared.iter().filter(|shared| !shared.is_slice).count() {
        0 => or_default(workgroup_memory, 0),
        count => {
            let (k, end) = (&names.private, offset(&names, &shared, count));
            quote!(#end as #k::u64)
        }
    };
    if parameters.len() > MAX_PARAMETERS {
        let message = "a kernel has 16 parameters at most besides the lane: put numbers in a struct with \
                       `#[derive(Plain)]`";
        return Err(Error::new_spanned(&function.sig.inputs, message));
    }
    let zero = quote!(0);
    let options = LaunchOptions { workgroups: zero.clone(), lanes: zero, workgroup_memory, max_lanes };
    Ok(expand(&names, Kernel { function, name, parameters, shared, order, is_main: false, options }))
}

/// Takes the mark `#[workgroup]` off a parameter. Returns whether there was one.
fn take_mark(input: &mut FnArg) -> Result<bool> {
    let FnArg::Typed(typed) = input else { return Ok(false) };
    let before = typed.attrs.len();
    if let Some(mark) = typed.attrs.iter().find(|attribute| attribute.path().is_ident("workgroup")) {
        mark.meta.require_path_only()?;
    }
    typed.attrs.retain(|attribute| !attribute.path().is_ident("workgroup"));
    Ok(typed.attrs.len() < before)
}

/// Reads a parameter marked `#[workgroup]`, and the one before it.
fn shared_parameter(input: &FnArg, before: Option<&Shared>) -> Result<Shared> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(input, "a kernel cannot take `self`"));
    };
    if before.is_some_and(|before| before.is_slice) {
        let message = "a slice takes all of the workgroup's memory that is left: it is the last parameter marked \
                       `#[workgroup]`";
        return Err(Error::new_spanned(input, message));
    }
    let message = "workgroup memory is shared by its lanes: take `&[Shared<T>; N]`, or `&[Shared<T>]` for what a launch asks \
                   for";
    let Type::Reference(reference) = peel(&typed.ty) else {
        return Err(Error::new_spanned(&typed.ty, message));
    };
    if reference.mutability.is_some() {
        return Err(Error::new_spanned(reference, message));
    }
    if let Some(lifetime) = reference.lifetime.as_ref().filter(|lifetime| lifetime.ident == "static") {
        let message = "workgroup memory lives as long as its workgroup: leave `'static` away";
        return Err(Error::new_spanned(lifetime, message));
    }
    Ok(match peel(&reference.elem) {
        Type::Slice(slice) => Shared { ty: (*slice.elem).clone(), is_slice: true },
        element => Shared { ty: element.clone(), is_slice: false },
    })
}

/// Where in workgroup memory the parameter of this place begins.
fn offset(names: &Names, shared: &[Shared], place: usize) -> TokenStream {
    let k = &names.private;
    shared[..place].iter().fold(quote!(0), |offset, Shared { ty, .. }| {
        let end = quote_spanned!(ty.span()=> workgroup_end);
        quote!(#k::#end::<#ty>(#offset))
    })
}

pub fn main(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut options = Options::parse(options)?;
    let krate = crate_option(&mut options)?;
    let function: ItemFn = syn::parse2(item)?;
    let workgroups = match (options.flag("resident")?, options.value("workgroups")?) {
        (true, Some(workgroups)) => {
            let message =
                "`resident` takes as many workgroups as the device runs at once: leave `workgroups` away";
            return Err(Error::new_spanned(workgroups, message));
        }
        (true, None) => quote!(0),
        (false, workgroups) => or_default(workgroups, 1),
    };
    let launch = LaunchOptions {
        workgroups,
        lanes: or_default(options.value("lanes")?, 1),
        workgroup_memory: or_default(options.value("workgroup_memory")?, 0),
        max_lanes: or_default(options.value("max_lanes")?, 0),
    };
    options.finish("`workgroups`, `resident`, `lanes`, `workgroup_memory`, `max_lanes` and `crate`")?;
    check_function(&function)?;
    if let Safety::Unsafe(token) = &function.sig.safety {
        let message = "`main` is launched by the `hostcall` command, which can promise nothing: it is safe";
        return Err(Error::new_spanned(token, message));
    }
    if function.sig.inputs.len() > 1 {
        let message = "`main` takes nothing or `lane: &Lane`; its arguments are in the environment";
        return Err(Error::new_spanned(&function.sig.inputs, message));
    }
    let names = Names::new(&quote!(#function), krate)?;
    let name = "main".to_owned(); // `hostcall_abi::launch::MAIN_KERNEL`
    let kernel = Kernel {
        function,
        name,
        parameters: vec![],
        shared: vec![],
        order: vec![],
        is_main: true,
        options: launch,
    };
    Ok(expand(&names, kernel))
}

fn or_default(value: Option<Expr>, default: u64) -> TokenStream {
    value.map_or_else(|| quote!(#default), |value| quote!(#value))
}

/// Whether a name can be part of a symbol on every device, from which it is read again.
fn is_symbol(name: &str) -> bool {
    let letters = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    letters && !name.starts_with("info_")
}

/// The kernel's name when no option gives one.
fn own_name(function: &Ident) -> Result<String> {
    let name = function.unraw().to_string();
    if is_symbol(&name) {
        return Ok(name);
    }
    let message = "this name cannot be a symbol on every device (ASCII letters, digits and `_` that do not start \
                   with `info_`): give the kernel another one with `#[kernel(name = \"...\")]`";
    Err(Error::new_spanned(function, message))
}

/// The text of the `name` option.
fn given_name(value: &Expr) -> Result<String> {
    if let Expr::Lit(literal) = value
        && let Lit::Str(text) = &literal.lit
        && is_symbol(&text.value())
    {
        return Ok(text.value());
    }
    let message =
        "a kernel's name is a string of ASCII letters, digits and `_` that does not start with `info_`";
    Err(Error::new_spanned(value, message))
}

fn check_function(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    for generic in &signature.generics.params {
        if !matches!(generic, GenericParam::Lifetime(_)) {
            return Err(Error::new_spanned(generic, "a kernel cannot be generic: it is one symbol"));
        }
    }
    if let Some(token) = &signature.asyncness {
        return Err(Error::new_spanned(token, "a kernel cannot be `async`"));
    }
    if let Some(token) = &signature.constness {
        return Err(Error::new_spanned(token, "a kernel cannot be `const`: it runs on the device"));
    }
    if let Some(token) = &signature.variadic {
        return Err(Error::new_spanned(token, "a kernel cannot be variadic"));
    }
    if let Some(token) = &signature.abi {
        return Err(Error::new_spanned(token, "leave the ABI away: the macro exports the right entry"));
    }
    match signature.inputs.first() {
        None => Ok(()),
        Some(FnArg::Typed(lane)) if matches!(peel(&lane.ty), Type::Reference(r) if r.mutability.is_none()) => {
            Ok(())
        }
        Some(other) => Err(Error::new_spanned(other, "the first parameter is `lane: &Lane`")),
    }
}

/// The type without the groups that `macro_rules!` puts around one.
fn peel(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            ty => return ty,
        };
    }
}

fn parameter(names: &Names, of_launch: &Lifetime, input: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(input, "a kernel cannot take `self`"));
    };
    let k = &names.private;
    let refuse_lifetime = |ty: &Type| match lifetime(quote!(#ty)) {
        None => Ok(()),
        Some(token) => {
            let message = "what a kernel gets holds no references of its own: pass the data as a parameter";
            Err(Error::new_spanned(token, message))
        }
    };
    let span = typed.ty.span();
    let (marker, checked, value) = match peel(&typed.ty) {
        Type::Reference(reference) if reference.mutability.is_some() => {
            let message = "all lanes share the arguments: take `&[Global<T>]` and write with `set`";
            return Err(Error::new_spanned(reference, message));
        }
        Type::Reference(reference) => {
            if let Some(lifetime) = reference.lifetime.as_ref().filter(|lifetime| lifetime.ident == "static")
            {
                let message = "a kernel's arguments live as long as the launch: leave `'static` away";
                return Err(Error::new_spanned(lifetime, message));
            }
            match peel(&reference.elem) {
                Type::Slice(slice) => {
                    let element = &slice.elem;
                    refuse_lifetime(element)?;
                    let checked = checked(names, element, "OfPlain", "Slice");
                    (quote!(#k::Slice<#element>), checked, quote!(&#of_launch [#element]))
                }
                Type::Path(path) if path.path.is_ident("str") => {
                    let message = "a kernel takes no text: pass its bytes as `&[u8]`";
                    return Err(Error::new_spanned(reference, message));
                }
                element => {
                    refuse_lifetime(element)?;
                    let checked = checked(names, element, "OfPlain", "Ref");
                    (quote!(#k::Ref<#element>), checked, quote!(&#of_launch #element))
                }
            }
        }
        value => {
            refuse_lifetime(value)?;
            (quote!(#value), checked(names, value, "OfValue", "Value"), quote!(#value))
        }
    };
    Ok(Parameter { marker, checked, value, span })
}

/// The parameter's marker, by way of a trait that `Parameter` has if its type can be one. An error points at all of the
/// type.
fn checked(names: &Names, ty: &Type, of: &str, marker: &str) -> TokenStream {
    let (start, end) = (ty.span(), last_span(quote!(#ty)).unwrap_or_else(|| ty.span()));
    let k = located_at(&names.private, start);
    let [of, marker] = [of, marker].map(|name| Ident::new(name, start));
    let parameter = Ident::new("Parameter", end);
    quote_spanned!(start=> <#k::#parameter as #k::#of<#ty>>::#marker)
}

/// The same tokens, as if they had been written where `span` is.
fn located_at(tokens: &TokenStream, span: Span) -> TokenStream {
    let located = tokens.clone().into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    located.collect()
}

/// The span of the last token.
fn last_span(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().last().map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            last_span(group.stream()).unwrap_or_else(|| group.span())
        }
        TokenTree::Group(group) => group.span_close(),
        token => token.span(),
    })
}

/// The lifetime of what a launch's kernel gets.
fn of_launch() -> Lifetime {
    Lifetime::new("'__hostcall_launch", Span::mixed_site())
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

/// The first lifetime among the tokens that is not `'_`, which stands for the launch's.
fn lifetime(tokens: TokenStream) -> Option<TokenStream> {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(quote) if quote.as_char() == '\'' => {
                let name = tokens.next();
                if !matches!(&name, Some(TokenTree::Ident(name)) if name == "_") {
                    return Some(quote!(#quote #name));
                }
            }
            TokenTree::Group(group) => {
                if let Some(found) = lifetime(group.stream()) {
                    return Some(found);
                }
            }
            _ => {}
        }
    }
    None
}

/// Statements that export the kernel's entry for the device that the crate is compiled for. `types` are the parameters'
/// and `run` the function that takes their values.
fn entries(names: &Names, entry: &Ident, types: &TokenStream, run: &Ident) -> TokenStream {
    let k = &names.private;
    let [lane, launch, arguments] = ["lane", "launch", "arguments"].map(|name| names.fresh(name));
    quote! {
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn #entry(#lane: *mut #k::CpuLane, #arguments: *const #k::u8) -> #k::u32 {
            // SAFETY: the executor passes its lane and the argument block that `KernelInfo::schema` describes,
            // and keeps what the arguments refer to until the launch has ended.
            unsafe { #k::enter_kernel::<#types>(#lane, #arguments, #run) }
        }

        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn #entry(
            #launch: #k::LaunchParams,
            #arguments: <#types as #k::Parameters>::Block,
        ) {
            // SAFETY: the host launches the entry only on a device that has the channel that `launch` describes,
            // with the argument block that `KernelInfo::schema` describes, and keeps what the arguments refer to
            // until the launch has ended.
            unsafe { #k::enter_kernel::<#types>(&#launch, #arguments, #run) }
        }

        // By address, since rustc passes structs to AMD's kernels in ways that hang on their fields.
        #[cfg(target_arch = "amdgpu")]
        #[unsafe(no_mangle)]
        pub unsafe extern "gpu-kernel" fn #entry(
            #launch: *const #k::LaunchParams,
            #arguments: *const <#types as #k::Parameters>::Block,
        ) {
            // SAFETY: as for NVIDIA's entry; the host passes the addresses of both.
            unsafe { #k::enter_kernel::<#types>(&*#launch, #arguments.read(), #run) }
        }
    }
}

fn expand(names: &Names, kernel: Kernel) -> TokenStream {
    let Kernel { function, name, parameters, shared, order, is_main, options } = kernel;
    let LaunchOptions { workgroups, lanes, workgroup_memory, max_lanes } = options;
    let k = &names.private;
    let (visibility, ident) = (&function.vis, &function.sig.ident);
    // The constant has what is said of the kernel as an item, and the function the rest.
    let of_item = ["doc", "cfg", "deprecated"];
    let (outer, inner): (Vec<&Attribute>, Vec<&Attribute>) = function
        .attrs
        .iter()
        .partition(|attribute| of_item.iter().any(|name| attribute.path().is_ident(name)));
    let (signature, block) = (&function.sig, &function.block);
    let markers: Vec<_> = parameters.iter().map(|parameter| &parameter.marker).collect();
    let shadows = shadows(function.sig.inputs.iter().filter_map(input_name).filter(|name| *name != ident));

    let symbol = symbol::unique(&name);
    let (entry, info) =
        (format_ident!("hostcall_kernel_{symbol}"), format_ident!("hostcall_kernel_info_{symbol}"));
    let [run, info_value, lane] = ["run", "info", "lane"].map(|name| names.fresh(name));
    let checked = parameters.iter().map(|parameter| &parameter.checked);
    let types = quote!((#(#checked,)*));
    let lifetime = of_launch();
    let value_types = parameters.iter().map(|parameter| &parameter.value);
    let values: Vec<_> = (0..parameters.len()).map(|i| names.fresh(&format!("value_{i}"))).collect();
    // The spans make rustc point at the parameter that is not as general as a launch needs it.
    let passed = order.iter().map(|input| match *input {
        Input::Passed(place) => {
            let mut value = values[place].clone();
            value.set_span(value.span().located_at(parameters[place].span));
            quote!(#value)
        }
        Input::Shared(place) => {
            let (Shared { ty, is_slice }, offset) = (&shared[place], offset(names, &shared, place));
            let of = if *is_slice { quote!(workgroup_rest) } else { quote!(workgroup_at) };
            // SAFETY: `KernelInfo::workgroup_memory_bytes` has room for all of them, each at a place of its own.
            quote!(unsafe { #k::#of::<#ty>(#lane, const { #offset }) })
        }
    });
    let passed: Vec<_> = passed.collect();
    // What is typed is nothing else besides.
    let typed = (!shared.is_empty()).then(|| quote!(let #lane = &#k::lane_of_typed(#lane);));
    let passed_lane = (!function.sig.inputs.is_empty()).then(|| quote!(#lane,));
    let call = quote!(#ident(#passed_lane #(#passed),*));
    let call = if is_main {
        // The span makes rustc point at the return type when it is neither `()` nor `i32`.
        quote_spanned!(function.sig.output.span()=> #k::finish_main(#call))
    } else if matches!(function.sig.safety, Safety::Unsafe(_)) {
        // SAFETY: who launched the kernel promised what it asks for, in `UnsafeKernel::assume_safe`.
        quote!(unsafe { #call })
    } else {
        call
    };
    let kind =
        if matches!(function.sig.safety, Safety::Unsafe(_)) { quote!(UnsafeKernel) } else { quote!(Kernel) };
    let entries = entries(names, &entry, &types, &run);
    let variables = ["lane", "launch", "arguments"].map(|name| names.fresh(name));
    let own_shadows = crate::names::shadows(variables.iter().chain(&values));
    quote! {
        #(#outer)*
        #[allow(
            non_upper_case_globals,
            non_camel_case_types,
            dead_code,
            unsafe_code,
            improper_ctypes_definitions,
            clippy::undocumented_unsafe_blocks,
            clippy::missing_safety_doc,
            clippy::type_complexity,
            clippy::too_many_arguments,
            reason = "the kernel's constant and its entry are made by a macro, whose safety `hostcall_device` argues"
        )]
        #visibility const #ident: #k::#kind<(#(#markers,)*)> = {
            #shadows
            #(#inner)*
            #signature #block

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

                const #info_value: #k::KernelInfo = #k::kernel_info::<#types>(
                    ::core::concat!(::core::module_path!(), "::", #name),
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
