//! What a code object says of its kernels, in MessagePack (LLVM's guide for AMDGPU, "Code Object Metadata").

use rmp_serde::Deserializer;
use serde::Deserialize;

use super::{Refused, refuse};

/// The part of the metadata that is used.
#[derive(Debug, Default, Deserialize)]
pub struct Metadata<'a> {
    #[serde(rename = "amdhsa.kernels", default, borrow)]
    pub kernels: Vec<Described<'a>>,
}

/// What is said of a kernel. Any number of symbols may have its name.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Described<'a> {
    #[serde(rename = ".symbol")]
    pub symbol: Option<&'a str>,
    #[serde(rename = ".kernarg_segment_size")]
    pub kernarg_bytes: Option<u64>,
    #[serde(rename = ".kernarg_segment_align")]
    pub kernarg_alignment: Option<u64>,
}

/// How deep values may nest, of which compilers need half a dozen: what is skipped takes stack, too.
const DEEPEST: usize = 16;

/// Reads the metadata.
///
/// # Errors
///
/// It is no MessagePack, nests too deep, or has something else than numbers and texts in their places.
pub fn read(note: &[u8]) -> Result<Metadata<'_>, Refused> {
    let mut reader = Deserializer::from_read_ref(note);
    reader.set_max_depth(DEEPEST);
    match Metadata::deserialize(&mut reader) {
        Ok(metadata) => Ok(metadata),
        Err(error) => refuse!("its metadata is damaged: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_read() {
        let document =
            b"\x82\xa1a\x93\x01\xcd\x12\x34\xc3\xaeamdhsa.kernels\x92\x82\xa7.symbol\xd9\x04k.kd\xa5.args\x91\x80\
              \x81\xb5.kernarg_segment_size\xcd\x12\x34";
        let metadata = read(document).expect("it is MessagePack");
        let found: Vec<_> =
            metadata.kernels.iter().map(|kernel| (kernel.symbol, kernel.kernarg_bytes)).collect();
        assert_eq!(found, [(Some("k.kd"), None), (None, Some(0x1234))]);
        assert!(read(b"\x80").is_ok_and(|metadata| metadata.kernels.is_empty()));
    }

    #[test]
    fn lies_are_refused() {
        for lie in [
            &b""[..],
            b"\xdf\xff\xff\xff\xff\x01",
            b"\xdb\xff\xff\xff\xffabc",
            b"\x81\xaeamdhsa.kernels\xdd\xff\xff\xff\xff",
            b"\x81\xaeamdhsa.kernels\x91\x81\xa7.symbol\xa2\xff\xfe",
            b"\x81\xaeamdhsa.kernels\x91\x81\xb5.kernarg_segment_size\xff",
        ] {
            let refused = read(lie).expect_err("it lies").to_string();
            assert!(refused.contains("its metadata is damaged: "), "{refused}");
        }
        let nested = [b"\x81\xa1a".to_vec(), vec![0x91; 1 << 20]].concat();
        assert!(read(&nested).is_err_and(|refused| refused.0.contains("depth limit")));
    }
}
