//! Links LLVM's RPC server where Debian's libllvmlibc-19-dev put it.

use std::path::Path;

const FOLDER: &str = "/usr/lib/llvm-19/lib";

fn main() {
    let library = format!("{FOLDER}/libllvmlibc_rpc_server.a");
    println!("cargo::rustc-check-cfg=cfg(llvm_rpc_server)");
    println!("cargo::rerun-if-changed={library}");
    // Without it everything builds, and what needs it says so when it runs.
    if Path::new(&library).exists() {
        println!("cargo::rustc-cfg=llvm_rpc_server");
        println!("cargo::rustc-link-search=native={FOLDER}");
        println!("cargo::rustc-link-lib=static:-bundle=llvmlibc_rpc_server");
        println!("cargo::rustc-link-lib=stdc++");
    }
}
