//! Arguments as they cross the link.

use hostcall_format::{Format, RenderError, tags};

fn words(kinds: &[u8], words: &[u64]) -> Result<String, RenderError> {
    let mut out = Vec::new();
    let format = Format::parse(&"{:?} ".repeat(kinds.len())).unwrap();
    format.render_words(tags::of(kinds), words, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn bytes(tags: u64, data: &[u8]) -> Result<String, RenderError> {
    let mut out = Vec::new();
    Format::parse(&"{} ".repeat(tags::count(tags))).unwrap().render_bytes(tags, data, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn lines_survive_the_link() {
    let kinds = [tags::UNSIGNED, tags::I8, tags::F32, tags::CHAR, tags::POINTER];
    let arguments = [u64::MAX, -5i64 as u64, u64::from(1.5f32.to_bits()), 'é' as u64, 16];
    assert_eq!(words(&kinds, &arguments).unwrap(), "18446744073709551615 -5 1.5 'é' 0x10 ");
    assert_eq!(words(&[], &[]).unwrap(), "");

    let kinds = [tags::CALL_ERROR, tags::IO_ERROR];
    let arguments = [3, 2 | u64::from(-1i32 as u32) << 8];
    assert_eq!(words(&kinds, &arguments).unwrap(), "Panicked NotFound ");

    let kinds = [tags::STR, tags::BOOL, tags::STR];
    let mut data = [4u64, 1, 2].map(u64::to_le_bytes).concat();
    data.extend_from_slice("fünt!".as_bytes());
    assert_eq!(bytes(tags::of(&kinds), &data).unwrap(), "fün true t! ");
    assert!(tags::has_str(tags::of(&kinds)) && !tags::has_str(tags::of(&[1, 2])));
}

#[test]
fn garbage_is_refused() {
    let garbage: [(&[u8], &[u64]); 11] = [
        (&[tags::BOOL], &[2]),
        (&[tags::I8], &[128]),
        (&[tags::F32], &[1 << 32]),
        (&[tags::CHAR], &[0xd800]),
        (&[tags::STR], &[1]),
        (&[14], &[0]),
        (&[tags::CALL_ERROR], &[0]),
        (&[tags::IO_ERROR], &[2 | 1 << 40]),
        (&[tags::I64], &[]),
        (&[], &[1]),
        (&[1; 12], &[0; 13]),
    ];
    for (kinds, arguments) in garbage {
        assert_eq!(words(kinds, arguments), Err(RenderError::Decode), "{kinds:?} {arguments:?}");
    }
    for data in [&[][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0, 0xff], &[0; 9], &[0xff; 9]] {
        assert_eq!(bytes(tags::of(&[tags::STR]), data), Err(RenderError::Decode), "{data:?}");
    }
    assert!(bytes(u64::MAX, &[0; 200]).is_err());
}
