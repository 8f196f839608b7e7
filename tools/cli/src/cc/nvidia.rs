//! Linking for NVIDIA's GPUs, by LLVM's own tools: clang would need NVIDIA's linker.

use super::arguments::{Input, Item, Language};
use super::{Failed, Making, execute};
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What loaders look for in a program; all else is its own.
const PUBLIC: &str = "_begin,_start,_end,__llvm_libc_rpc_client,__llvm_rpc_client,__init_array_start,__init_array_end,\
                      __fini_array_start,__fini_array_end";

/// The object of libc in which LLVM 19 has the variable by which loaders find the client. No function uses it.
const CLIENT: &str = "rpc_client.cpp.o";

/// Libraries that an older LLVM made have another description of the same memory.
const QUIETLY: &str = "--suppress-warnings";

/// Has variables made that name constructors and destructors, by which loaders find them.
const LISTS_CONSTRUCTORS: &str = "--nvptx-lower-global-ctor-dtor";

/// Returns the oldest version of PTX that has the architecture and what LLVM's libc needs.
pub fn ptx_version(name: &str) -> &'static str {
    let number: String = name.chars().filter(char::is_ascii_digit).collect();
    match number.parse().unwrap_or(0) {
        ..90 if name != "sm_88" => "ptx78",
        90 => {
            if name == "sm_90" {
                "ptx78"
            } else {
                "ptx80"
            }
        }
        100 | 101 | 120 => {
            if name.ends_with('f') {
                "ptx88"
            } else {
                "ptx86"
            }
        }
        103 | 121 => "ptx88",
        _ => "ptx90",
    }
}

/// Makes a cubin, or PTX where there is no assembler.
pub fn make(making: &mut Making, name: &str) -> Result<Result<(), Failed>, Box<dyn Error>> {
    let mut objects = vec![making.toolchain.libc.startup.clone()];
    objects.extend(client(making)?);
    for place in 0..making.request.items.len() {
        let Item::Input(Input { path, language }) = making.request.items[place].clone() else { continue };
        if language == Language::Object {
            objects.push(path);
            continue;
        }
        let object = making.temporary("bc");
        let mut command = making.clang();
        // An option `-x` counts for the files behind it.
        for (at, item) in making.request.items.iter().enumerate() {
            let is_before = at < place || item.language().is_none();
            if !item.is_for_linking() && !matches!(item, Item::Input(_)) && is_before {
                command.args(item.words());
            }
            if at == place {
                command.args(item.words());
            }
        }
        if let Err(failed) = execute(command.arg("-c").arg("-o").arg(&object))? {
            return Ok(Err(failed));
        }
        objects.push(object);
    }
    let tool = |name: &str| making.toolchain.tool(name).map(Command::new);
    let mut steps = Vec::new();
    let [program, linked, whole, ptx] =
        ["program.bc", "linked.bc", "whole.bc", "program.ptx"].map(|name| making.scratch.join(name));
    let mut link = tool("llvm-link")?;
    link.arg(QUIETLY).args(&objects).arg("-o").arg(&program);
    steps.push(link);
    let mut needed = tool("llvm-link")?;
    needed.args([QUIETLY, "--only-needed"]).arg(&program).args(libraries(making)?).arg("-o").arg(&linked);
    steps.push(needed);
    let mut opt = tool("opt")?;
    opt.arg("-passes=internalize,globaldce,default<O3>")
        .arg(format!("-internalize-public-api-list={PUBLIC}"));
    opt.arg(&linked).arg("-o").arg(&whole);
    steps.push(opt);
    let mut llc = tool("llc")?;
    // Later versions do so always.
    let has = tool("llc")?.arg("--help-hidden").output()?;
    if String::from_utf8_lossy(&has.stdout).contains(&format!("{LISTS_CONSTRUCTORS} ")) {
        llc.arg(LISTS_CONSTRUCTORS);
    }
    llc.arg("-O3").arg(format!("-mcpu={name}")).arg(format!("-mattr=+{}", ptx_version(name)));
    llc.arg(&whole).arg("-o").arg(&ptx);
    steps.push(llc);
    let output = making.request.output.clone().unwrap_or_else(|| "a.out".into());
    let assembler = hostcall_build::assembler();
    if let Some(assembler) = &assembler {
        let mut assemble = Command::new(assembler);
        assemble.arg(format!("-arch={name}")).arg("-O3").arg(&ptx).arg("-o").arg(&output);
        steps.push(assemble);
    }
    for mut step in steps {
        if let Err(failed) = execute(&mut step)? {
            return Ok(Err(failed));
        }
    }
    if assembler.is_none() {
        fs::copy(&ptx, &output).map_err(|error| format!("cannot write {}: {error}", output.display()))?;
    }
    Ok(Ok(()))
}

/// Takes the client's object out of libc, if it has one.
fn client(making: &Making) -> Result<Option<PathBuf>, Box<dyn Error>> {
    let ar = making.toolchain.tool("llvm-ar")?;
    let libc = making.toolchain.libc.library.join("libc.a");
    let members = Command::new(&ar).arg("t").arg(&libc).output()?;
    if !members.stdout.split(|byte| *byte == b'\n').any(|member| member == CLIENT.as_bytes()) {
        return Ok(None);
    }
    let taken = Command::new(ar).arg("p").arg(&libc).arg(CLIENT).output()?;
    let path = making.scratch.join(CLIENT);
    fs::write(&path, taken.stdout)?;
    Ok(Some(path))
}

/// Returns the archives that are linked: the user's, by `-l` and `-L`, and those that every program gets.
fn libraries(making: &Making) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let libc = &making.toolchain.libc;
    let (mut folders, mut names) = (Vec::new(), Vec::new());
    for item in &making.request.items {
        let Item::Options(words) = item else { continue };
        let (option, value) = match &words[..] {
            [option, value] => (option.as_bytes(), value.as_bytes()),
            [word] if word.len() > 2 => word.as_bytes().split_at(2),
            _ => continue,
        };
        match option {
            b"-L" => folders.push(PathBuf::from(OsStr::from_bytes(value))),
            b"-l" => names.push(OsStr::from_bytes(value).to_string_lossy().into_owned()),
            _ => {}
        }
    }
    folders.push(libc.library.clone());
    names.extend(libc.libraries().iter().map(|option| option[2..].to_owned()));
    let mut found = Vec::new();
    for name in names {
        let file = format!("lib{name}.a");
        let place = folders.iter().map(|folder| folder.join(&file)).find(|path| path.is_file());
        let place =
            place.ok_or_else(|| format!("-l{name} is not there: no {file} is in {}", list(&folders)))?;
        if !found.contains(&place) {
            found.push(place);
        }
    }
    Ok(found)
}

fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| Path::display(folder).to_string()).collect::<Vec<_>>().join(", ")
}
