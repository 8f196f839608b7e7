//! Mistakes and what they are told.

use proc_macro2::TokenStream;
use syn::Result;

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap()
}

#[track_caller]
fn refused(result: Result<TokenStream>, part: &str) {
    let error = result.expect_err("the macro should refuse this").to_string();
    assert!(error.contains(part), "{error}");
}

#[test]
fn wrong_kernels() {
    for (options, item, part) in [
        ("", "fn k() {}", "`lane: &Lane`"),
        ("", "fn k(lane: Lane) {}", "`lane: &Lane`"),
        ("", "fn k(&self) {}", "`lane: &Lane`"),
        ("", "fn k(lane: &Lane, out: &mut [u64]) {}", "`x: &[Global<T>]`"),
        ("", "fn k(lane: &Lane) -> u32 { 0 }", "returns nothing"),
        ("", "fn k<T>(lane: &Lane, x: T) {}", "each instance of a generic kernel has a name"),
        ("", "fn k(lane: &Lane, x: impl Copy) {}", "name the type"),
        ("instances(a = <u8>)", "fn k(lane: &Lane) {}", "type parameters"),
        ("instances()", "fn k<T>(lane: &Lane, x: T) {}", "one at least"),
        ("instances = 3", "fn k<T>(lane: &Lane, x: T) {}", "write `instances(...)`"),
        ("instances(a = <u8, 3>)", "fn k<T>(lane: &Lane, x: T) {}", "`a` has 2 of 1"),
        ("instances(info_a = <u8>)", "fn k<T>(lane: &Lane, x: T) {}", "info_"),
        ("instances(a = <u8>), name = \"b\"", "fn k<T>(lane: &Lane, x: T) {}", "leave `name` away"),
        ("", "fn k(lane: &Lane, x: Option<&mut [u8]>) {}", "Disjoint"),
        ("", "async fn k(lane: &Lane) {}", "async"),
        ("", "fn k(#[workgroup] lane: &Lane) {}", "no workgroup memory"),
        ("", "fn k(lane: &Lane, #[cfg(a)] x: u32) {}", "two kernels"),
        ("name = \"a b\"", "fn k(lane: &Lane) {}", "ASCII"),
        ("name = \"info_x\"", "fn k(lane: &Lane) {}", "info_"),
        ("name", "fn k(lane: &Lane) {}", "`name = ...`"),
        ("lanes = 3", "fn k(lane: &Lane) {}", "unknown or repeated option `lanes`"),
    ] {
        refused(crate::kernel::kernel(tokens(options), tokens(item)), part);
    }
    refused(crate::kernel::main(tokens(""), tokens("fn main(lane: &Lane, x: u32) {}")), "environment");
    refused(
        crate::kernel::main(tokens("resident, workgroups = 3"), tokens("fn main() {}")),
        "leave `workgroups`",
    );
    refused(crate::kernel::main(tokens(""), tokens("fn main<T>(lane: &Lane) {}")), "each instance");
    refused(crate::kernel::main(tokens("name = 3"), tokens("fn main() {}")), "unknown");
}

#[test]
fn wrong_services() {
    for (item, part) in [
        ("trait S {}", "at least one"),
        ("trait S<T> { fn f(); }", "generic"),
        ("trait S: Clone { fn f(); }", "supertraits"),
        ("trait S { const C: u8; }", "methods only"),
        ("trait S { fn f() {} }", "end with `;`"),
        ("trait S { fn f<T>(); }", "generic"),
        ("trait S where u8: Copy { fn f(); }", "generic"),
        ("trait S { fn f() where u8: Copy; }", "generic"),
        ("trait S { extern \"C\" fn f(); }", "ABI"),
        ("trait S { fn f(&self); }", "no `self`"),
        ("trait S { fn f((a, b): (u8, u8)); }", "a name alone"),
        ("trait S { fn f(mut x: u8); }", "a name alone"),
        ("trait S { fn f(x @ 3: u8); }", "a name alone"),
        ("trait S { fn f(x: impl Copy); }", "name the type"),
        ("trait S { fn f() -> impl Copy; }", "name the type"),
        ("trait S { fn f(x: &'static str); }", "leave the lifetime away"),
        ("trait S { fn f(out: &mut [u8], x: u32); }", "last"),
        ("trait S { fn f(x: &u32); }", "`Wire` value"),
        ("trait S { fn f() -> &str; }", "`&mut [u8]`"),
        ("trait S { fn f(); fn r#f(x: u32); }", "another method"),
        ("trait S { fn serve(); }", "this name"),
        ("trait S { fn r#serve(); }", "this name"),
        ("trait S { #[cfg(a)] fn f(); }", "make a service of its own"),
        ("trait S { fn f(#[cfg(a)] x: u32); }", "make a service of its own"),
        ("trait S { #[deprecated] fn f(); }", "no other attributes"),
        ("trait S { #[tracing::instrument] fn f(); }", "no other attributes"),
        ("trait S { fn f(#[deprecated] x: u32); }", "no other attributes"),
        ("trait S { #[cfg_attr(a, cfg(b))] fn f(); }", "make a service of its own"),
        ("trait S { #[cfg_attr(a, doc = \"\", cfg_attr(b, cfg(c)))] fn f(); }", "make a service of its own"),
        ("trait S { #[cfg_attr(a, deprecated)] fn f(); }", "no other attributes"),
        ("#[cfg(a)] trait S { fn f(); }", "above `#[service]`"),
    ] {
        refused(crate::service::service(tokens(""), tokens(item)), part);
    }
    let many: String = (0..17).map(|i| format!("fn f{i}();")).collect();
    refused(crate::service::service(tokens(""), tokens(&format!("trait S {{ {many} }}"))), "16 methods");
    refused(crate::service::service(tokens("internal = 1"), tokens("trait S { fn f(); }")), "flag");
}

/// Of a method's attributes the functions have the documentation. The others say nothing to the compiler.
#[test]
fn harmless_attributes_of_services() {
    let item = "trait S {
        /// First.
        #[rustfmt::skip]
        #[allow(unused)]
        #[cfg_attr(a, allow(clippy::all))]
        #[cfg_attr(all(a, b), doc = \"second\", rustfmt::skip)]
        #[cfg_attr(true, cfg_attr(b, doc = include_str!(\"third\")))]
        fn f(
            /// Fourth.
            #[clippy::format_args]
            #[cfg_attr(a, expect(unused))]
            x: u32,
        );
    }";
    let made = crate::service::service(tokens("crate = k"), tokens(item)).unwrap().to_string();
    let documentation = "# [doc = \" First.\"] # [cfg_attr (all (a , b) , doc = \"second\")] \
                         # [cfg_attr (true , cfg_attr (b , doc = include_str ! (\"third\")))] ";
    assert!(made.contains(&format!("{documentation}# [inline] pub fn f")), "{made}");
    assert!(made.contains(&format!("{documentation}fn f (& self")), "{made}");
    assert!(!made.contains("rustfmt") && !made.contains("Fourth"), "{made}");
}

/// An attribute below the derive may add a field or change its type: the compiler compares what the derive saw.
#[test]
fn plain_structs_are_taken_apart_as_the_derive_saw_them() {
    let item = "#[repr(C)] #[hostcall(crate = k)] struct S { a: u32, b: [u8; 4] }";
    let made = crate::plain::derive(syn::parse_str(item).unwrap()).unwrap().to_string();
    let part = "let S { a : _ , b : _ , } = __hostcall_value ; (& raw const __hostcall_value . a , \
                & raw const __hostcall_value . b ,)";
    assert!(made.contains(part) && made.contains("-> (* const u32 , * const [u8 ; 4] ,)"), "{made}");
    // Or change the `repr`.
    assert!(made.contains("lies_as_in_c (:: core :: mem :: align_of :: < S > ()"), "{made}");
}

#[test]
fn wrong_wire_types_and_lines() {
    refused(crate::wire::derive(syn::parse_str("enum Never {}").unwrap()), "without variants");
    refused(crate::wire::derive(syn::parse_str("union U { a: u32 }").unwrap()), "enum");
    let print = |line| crate::print::print(tokens(line), crate::print::Stream::Stdout, "\n");
    refused(print("\"{\""), "expected `}`");
    refused(print("\"{:q}\", 1"), "unknown format type");
    refused(print("concat!(\"a\")"), "string literal");
    refused(print("\"\", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13"), "12 arguments");
}
