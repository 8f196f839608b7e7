//! Prints the instruction that each line of hexadecimal bytes on standard input holds.

use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line = line?;
        let hex = line.split('\t').next().unwrap_or("");
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .filter_map(|byte| u8::from_str_radix(hex.get(byte * 2..byte * 2 + 2)?, 16).ok())
            .collect();
        let (words, _) = bytes.as_chunks();
        let words: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
        match hostcall_softhsa::isa::decode(&words) {
            Ok(decoded) => writeln!(out, "{hex}\t{decoded}")?,
            Err(_) => writeln!(out, "{hex}\t")?,
        }
    }
    Ok(())
}
