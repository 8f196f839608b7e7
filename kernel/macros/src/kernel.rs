//! `#[kernel]` and `#[main]`.

mod expand;
mod instances;
mod parameter;

use crate::names::{Names, crate_option};
use crate::options::Options;
use expand::expand;
pub use expand::kept;
use instances::{Instance, instances};
use parameter::{Parameter, Shared, of_launch, offset, parameter, shared_parameter, take_mark};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Error, Expr, FnArg, Ident, ItemFn, LitStr, Result, ReturnType, Safety, Type};

/// What a kernel's expansion is made from.
struct Kernel<'a> {
    function: &'a ItemFn,
    /// The instance that it is of a generic function, which stands beside the kernel's constant.
    instance: Option<&'a Instance>,
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

/// A parameter after the lane, by its place among those of its kind.
enum Input {
    Passed(usize),
    Shared(usize),
}

pub fn kernel(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut options = Options::parse(options)?;
    let krate = crate_option(&mut options)?;
    let mut function: ItemFn = syn::parse2(item)?;
    let name = options.text("name")?;
    let given_instances = options.list("instances")?;
    let workgroup_memory = options.value("workgroup_memory")?;
    let max_lanes = or_default(options.value("max_lanes")?, 0);
    options.finish("`name`, `instances`, `workgroup_memory`, `max_lanes` and `crate`")?;
    check_function(&function)?;
    if !matches!(function.sig.output, ReturnType::Default) {
        let message = "a kernel returns nothing: write results through a `&[Global<T>]` parameter";
        return Err(Error::new_spanned(&function.sig.output, message));
    }
    if function.sig.inputs.is_empty() {
        return Err(Error::new_spanned(&function.sig.ident, "a kernel's first parameter is `lane: &Lane`"));
    }
    let instances = instances(&function.sig.generics, given_instances)?;
    if let (Some(name), false) = (&name, instances.is_empty()) {
        return Err(Error::new_spanned(name, "each of `instances` has its own name: leave `name` away"));
    }
    let names = Names::new(&quote!(#function), krate)?;
    let inputs: Vec<FnArg> = function.sig.inputs.iter().cloned().collect();
    for input in &mut function.sig.inputs {
        refuse_cfg(input)?;
        take_mark(input)?;
    }
    let make = |name: String, instance: Option<&Instance>, inputs: Vec<FnArg>| {
        let Taken { parameters, shared, order, workgroup_memory } =
            Taken::new(&names, inputs, &workgroup_memory)?;
        let (zero, max_lanes) = (quote!(0), max_lanes.clone());
        let options = LaunchOptions { workgroups: zero.clone(), lanes: zero, workgroup_memory, max_lanes };
        let function = &function;
        let kernel = Kernel { function, instance, name, parameters, shared, order, is_main: false, options };
        Ok(expand(&names, &kernel))
    };
    if instances.is_empty() {
        let name = match name {
            None => own_name(&function.sig.ident)?,
            Some(name) => given_name(&name)?,
        };
        return make(name, None, inputs);
    }
    let mut all = quote!(#function);
    for instance in &instances {
        let mut inputs = inputs.clone();
        for input in &mut inputs {
            instance.substitute(&function.sig.generics, input)?;
        }
        all.extend(make(own_name(&instance.name)?, Some(instance), inputs)?);
    }
    Ok(all)
}

/// Refuses a parameter that is there in some configurations only.
fn refuse_cfg(input: &FnArg) -> Result<()> {
    let FnArg::Typed(typed) = input else { return Ok(()) };
    match typed.attrs.iter().find(|attribute| attribute.path().is_ident("cfg")) {
        None => Ok(()),
        Some(attribute) => {
            let message = "a kernel's parameters are always there: write two kernels, each with its `#[cfg]`";
            Err(Error::new_spanned(attribute, message))
        }
    }
}

/// What a kernel takes.
struct Taken {
    parameters: Vec<Parameter>,
    shared: Vec<Shared>,
    order: Vec<Input>,
    /// Bytes, an expression.
    workgroup_memory: TokenStream,
}

impl Taken {
    /// Reads a kernel's parameters, of which the first is the lane.
    fn new(names: &Names, inputs: Vec<FnArg>, workgroup_memory: &Option<Expr>) -> Result<Self> {
        let (mut parameters, mut shared, mut order) = (Vec::new(), Vec::new(), Vec::new());
        let mut inputs = inputs.into_iter();
        let lane = inputs.next();
        if let Some(lane) = &lane
            && take_mark(&mut lane.clone())?
        {
            let message = "the lane is no workgroup memory: leave `#[workgroup]` away here";
            return Err(Error::new_spanned(lane, message));
        }
        for mut input in inputs {
            if take_mark(&mut input)? {
                order.push(Input::Shared(shared.len()));
                shared.push(shared_parameter(&input, shared.last())?);
            } else {
                order.push(Input::Passed(parameters.len()));
                parameters.push(parameter(names, &of_launch(), &input)?);
            }
        }
        if let (Some(bytes), false) = (workgroup_memory, shared.is_empty()) {
            let message = "the kernel's workgroup memory is its parameters marked `#[workgroup]`: leave the option \
                           away, and add a parameter for these bytes";
            return Err(Error::new_spanned(bytes, message));
        }
        let workgroup_memory = match shared.iter().filter(|shared| !shared.is_slice).count() {
            0 => or_default(workgroup_memory.clone(), 0),
            count => {
                let (k, end) = (&names.private, offset(names, &shared, count));
                quote!(#end as #k::u64)
            }
        };
        Ok(Self { parameters, shared, order, workgroup_memory })
    }
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
    instances(&function.sig.generics, None)?;
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
        function: &function,
        instance: None,
        name,
        parameters: vec![],
        shared: vec![],
        order: vec![],
        is_main: true,
        options: launch,
    };
    Ok(expand(&names, &kernel))
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

/// The kernel's name by the `name` option.
fn given_name(text: &LitStr) -> Result<String> {
    let name = text.value();
    if is_symbol(&name) {
        return Ok(name);
    }
    let message = "a kernel's name has ASCII letters, digits and `_`, and does not start with `info_`";
    Err(Error::new_spanned(text, message))
}

fn check_function(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
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
pub(crate) fn peel(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            ty => return ty,
        };
    }
}
