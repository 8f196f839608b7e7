//! Stacks in device memory in LLVM's text of a program for AMD, where variables are pointers of address space 5.

use super::{FIRST_BYTES, FIRST_SPARE_BYTES, FULL, frame};
use std::collections::BTreeSet;

/// The workgroup's words: its memory begins at LDS's first address.
const STACK: &str = "ptr addrspace(3) inttoptr (i32 0 to ptr addrspace(3))";
const STACK_END: &str = "ptr addrspace(3) inttoptr (i32 8 to ptr addrspace(3))";

/// The text of a program whose functions have their variables in device memory.
///
/// # Errors
/// A line that this module does not understand.
pub fn with_stacks(text: &str) -> Result<String, String> {
    let mut result = String::with_capacity(text.len() + text.len() / 4);
    let mut renamed = BTreeSet::new();
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        if !line.starts_with("define ") {
            result += line;
            continue;
        }
        let body: Vec<&str> = lines.by_ref().take_while(|line| line.trim_end() != "}").collect();
        if line.contains(" amdgpu_kernel ") {
            kernel(&mut result, line, &body);
        } else {
            function(&mut result, line, &body, &mut renamed)?;
        }
        result += "}\n";
    }
    for declaration in renamed {
        // The other ones stay for the kernels.
        if !text.contains(&format!("@{}(", name_of(&declaration))) {
            result += &declaration;
        }
    }
    Ok(result)
}

/// The name in a declaration that this module writes.
fn name_of(declaration: &str) -> &str {
    declaration.split_once('@').and_then(|(_, rest)| rest.split('(').next()).unwrap_or_default()
}

/// A kernel gives its workgroup the first stack.
fn kernel(result: &mut String, header: &str, body: &[&str]) {
    *result += header;
    let label = first_label(result, header, body);
    *result += &format!(
        "  %hostcall.first = alloca [{FIRST_BYTES} x i8], align 16, addrspace(5)\n  \
         %hostcall.low = addrspacecast ptr addrspace(5) %hostcall.first to ptr\n  \
         %hostcall.end = getelementptr i8, ptr %hostcall.low, i64 {FIRST_SPARE_BYTES}\n  \
         %hostcall.high = getelementptr i8, ptr %hostcall.low, i64 {FIRST_BYTES}\n  \
         store volatile ptr %hostcall.high, {STACK}, align 8\n  \
         store volatile ptr %hostcall.end, {STACK_END}, align 8\n  br label %{label}\n\n"
    );
    begin_of_body(result, &label, body);
    body.iter().for_each(|line| *result += line);
}

/// Begins a block in front of a function's first one, and returns that one's name.
fn first_label(result: &mut String, header: &str, body: &[&str]) -> String {
    *result += "hostcall.entry:\n";
    let named = body.first().and_then(|line| label(line));
    named.map_or_else(|| unnamed_block(header).to_string(), str::to_owned)
}

/// Names the first block, where it had no name but its number.
fn begin_of_body(result: &mut String, name: &str, body: &[&str]) {
    if body.first().is_none_or(|line| label(line).is_none()) {
        *result += &format!("{name}:\n");
    }
}

/// The name of the block that a line begins.
fn label(line: &str) -> Option<&str> {
    if line.starts_with(' ') {
        return None;
    }
    line.split_once(':').map(|(name, _)| name)
}

/// The number of a first block that has no name: it comes behind those of parameters.
fn unnamed_block(header: &str) -> usize {
    let (_, parameters) = header.split_once('(').unwrap_or_default();
    let is_number = |word: &&str| {
        word.strip_prefix('%').is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    parameters.split([' ', ',', ')']).filter(is_number).count()
}

/// A variable of a function.
struct Variable<'t> {
    name: &'t str,
    bytes: u64,
    align: u64,
}

/// A function takes a frame, if it has variables.
fn function(
    result: &mut String,
    header: &str,
    body: &[&str],
    renamed: &mut BTreeSet<String>,
) -> Result<(), String> {
    if header.contains("ptr addrspace(5)") {
        return Err(format!("a function with a private parameter: {}", header.trim_end()));
    }
    *result += header;
    let variables: Vec<Variable<'_>> = body
        .iter()
        .filter(|line| line.contains(ALLOCA))
        .map(|line| variable(line).ok_or_else(|| format!("a variable on the stack: {}", line.trim())))
        .collect::<Result<_, _>>()?;
    let (places, bytes, align) = frame(variables.iter().map(|variable| (variable.bytes, variable.align)));
    if !variables.is_empty() {
        let label = first_label(result, header, body);
        enter(result, bytes, align, &label);
        begin_of_body(result, &label, body);
    }
    // Where they were, since the numbers of what has no name are in their order.
    let mut places = variables.iter().zip(places);
    for line in body {
        let text = line.trim_start();
        if text.starts_with("#dbg_") || text.contains("call void @llvm.lifetime.") {
            continue;
        }
        if !variables.is_empty() && (text.starts_with("ret ") || text.starts_with("resume ")) {
            *result += &format!("  store volatile i64 %hostcall.before, {STACK}, align 8\n");
        }
        if line.contains(ALLOCA) {
            let (Variable { name, .. }, place) = places.next().expect("each line has a variable");
            *result += &format!("  {name} = getelementptr inbounds i8, ptr %hostcall.at, i64 {place}\n");
        } else if line.contains("addrspace(5)") || line.contains(".p5") {
            *result += &in_device_memory(line, renamed)?;
        } else {
            *result += line;
        }
    }
    Ok(())
}

/// What a line has that makes a variable.
const ALLOCA: &str = " = alloca ";

/// Takes a frame from the stack, and goes to the first block.
fn enter(result: &mut String, bytes: u64, align: u64, label: &str) {
    *result += &format!(
        "  %hostcall.before = load volatile i64, {STACK}, align 8\n  \
         %hostcall.end = load volatile i64, {STACK_END}, align 8\n  \
         %hostcall.below = sub i64 %hostcall.before, {bytes}\n  \
         %hostcall.frame = and i64 %hostcall.below, -{align}\n  \
         %hostcall.is_full = icmp ult i64 %hostcall.frame, %hostcall.end\n  \
         br i1 %hostcall.is_full, label %hostcall.full, label %hostcall.taken\n\n\
         hostcall.full:\n  call void @{FULL}()\n  unreachable\n\n\
         hostcall.taken:\n  store volatile i64 %hostcall.frame, {STACK}, align 8\n  \
         %hostcall.at = inttoptr i64 %hostcall.frame to ptr\n  br label %{label}\n\n"
    );
}

/// A variable's line: `%x = alloca [24 x i8], align 8, addrspace(5)`.
fn variable(line: &str) -> Option<Variable<'_>> {
    let (name, rest) = line.trim().split_once(ALLOCA)?;
    let (kind, rest) = rest.rsplit_once(", align ")?;
    let align = rest.split(',').next()?.trim().parse().ok()?;
    let (bytes, _) = size(kind)?;
    Some(Variable { name, bytes, align })
}

/// Bytes and alignment of a type, as the layout of AMD's targets has them.
fn size(kind: &str) -> Option<(u64, u64)> {
    let kind = kind.trim();
    let inside = |open: &str, close: &str| kind.strip_prefix(open)?.strip_suffix(close).map(str::trim);
    if let Some(packed) = inside("<{", "}>") {
        return Some((parts(packed).map(|part| Some(size(part)?.0)).sum::<Option<u64>>()?, 1));
    }
    if let Some(fields) = inside("{", "}") {
        let (mut bytes, mut aligned) = (0u64, 1);
        for part in parts(fields) {
            let (size, align) = size(part)?;
            bytes = bytes.next_multiple_of(align) + size;
            aligned = aligned.max(align);
        }
        return Some((bytes.next_multiple_of(aligned), aligned));
    }
    if let Some(array) = inside("[", "]") {
        let (count, element) = array.split_once(" x ")?;
        let (bytes, align) = size(element)?;
        return Some((count.trim().parse::<u64>().ok()? * bytes, align));
    }
    if let Some(vector) = inside("<", ">") {
        let (count, element) = vector.split_once(" x ")?;
        let bytes = (count.trim().parse::<u64>().ok()? * size(element)?.0).next_power_of_two();
        return Some((bytes, bytes));
    }
    if kind.starts_with("ptr") {
        return Some((8, 8));
    }
    let bytes = match kind {
        "half" | "bfloat" => 2,
        "float" => 4,
        "double" => 8,
        _ => kind.strip_prefix('i')?.parse::<u64>().ok()?.div_ceil(8).next_power_of_two(),
    };
    Some((bytes, bytes.min(16)))
}

/// What commas divide that are not within brackets.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        depth += i32::from("[{<(".contains(c)) - i32::from("]}>)".contains(c));
        c == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
}

/// A line whose constants that are cast to private pointers stay as they are: null and others that point nowhere.
fn without_casts(line: &str) -> String {
    const CAST: &str = "addrspacecast (ptr ";
    let (mut rest, mut result) = (line, String::with_capacity(line.len()));
    while let Some(at) = rest.find(CAST) {
        let inner = &rest[at + CAST.len()..];
        let mut depth = 1;
        let end = inner.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let cast = end.and_then(|end| Some((inner[..end].strip_suffix(" to ptr addrspace(5)")?, end)));
        match cast.filter(|(constant, _)| !constant.starts_with("addrspace(")) {
            Some((constant, end)) => {
                result += &rest[..at];
                result += constant;
                rest = &inner[end + 1..];
            }
            None => {
                result += &rest[..at + CAST.len()];
                rest = inner;
            }
        }
    }
    result + rest
}

/// A line whose private pointers are ones to device memory.
///
/// # Errors
/// Where such a pointer is made of a number or is a constant, which would be another one.
fn in_device_memory(line: &str, renamed: &mut BTreeSet<String>) -> Result<String, String> {
    let private = "ptr addrspace(5)";
    let text = line.trim();
    if text.contains(&format!("({private}")) && text.contains("cast (") || text.contains("= inttoptr ") {
        return Err(format!("a private pointer of something else: {text}"));
    }
    let casts = text.contains(&format!("= addrspacecast {private}"))
        || text.contains("= addrspacecast ptr %") && text.ends_with(private);
    let mut line = without_casts(line).replace(private, "ptr");
    if casts {
        // Nothing is left to cast. What a constant casts stays.
        line = line.replacen("= addrspacecast ", "= bitcast ", 1);
    }
    if let Some((before, intrinsic)) = line.split_once("@llvm.")
        && let Some((name, rest)) = intrinsic.split_once('(')
        && name.contains(".p5")
    {
        let name = name.replace(".p5", ".p0");
        // The name says in which memory each pointer's place lies: `memcpy.p1.p0.i64`.
        let mut parameters: Vec<String> = name
            .split('.')
            .filter_map(|part| part.strip_prefix('p')?.parse().ok())
            .map(|space: u32| if space == 0 { "ptr".into() } else { format!("ptr addrspace({space})") })
            .collect();
        if name.starts_with("memset.") {
            parameters.push("i8".into());
        }
        let length = name.rsplit('.').next().unwrap_or("i64");
        let parameters = parameters.join(", ");
        renamed.insert(format!("declare void @llvm.{name}({parameters}, {length}, i1)\n"));
        line = format!("{before}@llvm.{name}({rest}");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_take_their_variables_from_the_stack() {
        let text = "\
define internal void @f(ptr %0, i32 %n) #1 {
  %2 = alloca [24 x i8], align 8, addrspace(5)
  %x = alloca { i32, ptr, <2 x i8> }, align 32, addrspace(5)
  call void @llvm.lifetime.start.p5(ptr addrspace(5) %2)
  %x.1 = addrspacecast ptr addrspace(5) %x to ptr
  call void @llvm.memset.p5.i64(ptr addrspace(5) align 8 %2, i8 0, i64 24, i1 false)
  call void @llvm.memcpy.p1.p5.i64(ptr addrspace(1) @v, ptr addrspace(5) %2, i64 24, i1 false)
  %g = getelementptr inbounds nuw i8, ptr addrspace(5) %2, i32 8
  store ptr addrspacecast (ptr addrspace(1) @v to ptr), ptr addrspace(5) %2, align 8
  %n = icmp eq ptr addrspace(5) %2, addrspacecast (ptr null to ptr addrspace(5))
  %m = select i1 %c, ptr addrspace(5) addrspacecast (ptr inttoptr (i64 8 to ptr) to ptr addrspace(5)), ptr addrspace(5) %2
  br i1 %c, label %3, label %4

3:
  ret void

4:
  unreachable
}
define void @leaf() {
start:
  ret void
}
declare void @llvm.memset.p5.i64(ptr addrspace(5), i8, i64, i1)
";
        let made = with_stacks(text).unwrap();
        assert!(!made.split("declare").next().unwrap().contains("addrspace(5)"), "{made}");
        for line in [
            "sub i64 %hostcall.before, 64\n",
            "and i64 %hostcall.below, -32\n",
            "  br label %1\n\n1:\n  %2 = getelementptr inbounds i8, ptr %hostcall.at, i64 0\n",
            "  %x = getelementptr inbounds i8, ptr %hostcall.at, i64 32\n",
            "%x.1 = bitcast ptr %x to ptr\n",
            "%n = icmp eq ptr %2, null\n",
            "%m = select i1 %c, ptr inttoptr (i64 8 to ptr), ptr %2\n",
            "store ptr addrspacecast (ptr addrspace(1) @v to ptr), ptr %2, align 8\n",
            "call void @llvm.memset.p0.i64(ptr align 8 %2, i8 0, i64 24, i1 false)\n",
            "%g = getelementptr inbounds nuw i8, ptr %2, i32 8\n",
            "  store volatile i64 %hostcall.before, ptr addrspace(3) inttoptr (i32 0 to ptr addrspace(3)), align 8\n  ret void\n",
            "call void @llvm.memcpy.p1.p0.i64(ptr addrspace(1) @v, ptr %2, i64 24, i1 false)\n",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n",
            "declare void @llvm.memcpy.p1.p0.i64(ptr addrspace(1), ptr, i64, i1)\n",
            "define void @leaf() {\nstart:\n  ret void\n}\n",
        ] {
            assert!(made.contains(line), "{line}\n{made}");
        }
    }

    #[test]
    fn kernels_keep_theirs_and_give_the_first_stack() {
        let text = "define amdgpu_kernel void @k(ptr %p) {\nstart:\n  %a = alloca [8 x i8], align 8, addrspace(5)\n  ret void\n}\n";
        let made = with_stacks(text).unwrap();
        assert!(made.contains("%a = alloca [8 x i8], align 8, addrspace(5)\n  ret void\n}"), "{made}");
        assert!(made.contains("hostcall.entry:\n  %hostcall.first = alloca [12288 x i8]"), "{made}");
        assert!(made.contains("br label %start\n\nstart:\n"), "{made}");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "define void @f(ptr addrspace(5) %x) {\n  ret void\n}\n",
            "define void @f() {\n  %x = alloca i8, i64 %n, align 1, addrspace(5)\n  ret void\n}\n",
            "define void @f() {\n  %x = inttoptr i32 %y to ptr addrspace(5)\n  ret void\n}\n",
            "define void @f() {\n  %x = alloca %struct, align 1, addrspace(5)\n  ret void\n}\n",
        ] {
            assert!(with_stacks(text).is_err(), "{text}");
        }
    }

    #[test]
    fn types_have_sizes() {
        let sizes = [
            ("[3 x [2 x i16]]", 12),
            ("{ i8, i64, [3 x i8] }", 24),
            ("<{ i8, i64 }>", 9),
            ("<3 x i32>", 16),
            ("i1", 1),
            ("i128", 16),
            ("ptr addrspace(5)", 8),
        ];
        for (kind, bytes) in sizes {
            assert_eq!(size(kind).map(|(bytes, _)| bytes), Some(bytes), "{kind}");
        }
    }
}
