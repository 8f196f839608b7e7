//! Makes a copy of the library's sources with the platform layer in it.

use super::layer::{ADDED, INSERTED, Inserted};
use crate::BuildError;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The version of Rust whose library the layer fits.
const SUPPORTED: (u32, u32) = (1, 96);

/// The one package of the library that is copied; the others are reached by links.
const COPIED: &str = "std";

/// What of that package is not needed.
const LEFT_OUT: [&str; 2] = ["benches", "tests"];

/// Returns the folder of a copy of the library in `sources` that has the layer, below `cache`, and makes it if it is not there.
/// Its name stands for all that it holds, so that it never changes.
///
/// # Errors
/// A library that the layer does not fit; files that cannot be read or written.
pub fn patched(sources: &Path, version: Option<(u32, u32)>, cache: &Path) -> Result<PathBuf, BuildError> {
    if version != Some(SUPPORTED) {
        return Err(unfit(sources, "it is of another version"));
    }
    let (texts, links) = texts(sources)?;
    let mut hasher = DefaultHasher::new();
    (&texts, &links).hash(&mut hasher);
    let copy = cache.join(format!("rust-std-{:016x}", hasher.finish()));
    if copy.exists() {
        return Ok(copy);
    }
    let new = copy.with_extension(format!("{}.new", std::process::id()));
    let written = write(&new, &texts, &links).and_then(|()| match fs::rename(&new, &copy) {
        // Another process was first.
        Err(_) if copy.exists() => Ok(()),
        renamed => renamed.map_err(at(&copy)),
    });
    // Mostly it has its place.
    let _ = fs::remove_dir_all(&new);
    written.map(|()| copy)
}

fn write(folder: &Path, texts: &Texts, links: &Links) -> Result<(), BuildError> {
    for (path, target) in links {
        let link = folder.join(path);
        make_folder_of(&link)?;
        symlink(target, &link).map_err(at(&link))?;
    }
    for (path, text) in texts {
        let file = folder.join(path);
        make_folder_of(&file)?;
        fs::write(&file, text).map_err(at(&file))?;
    }
    Ok(())
}

type Texts = BTreeMap<PathBuf, Vec<u8>>;
type Links = BTreeMap<PathBuf, PathBuf>;

/// The files of the copy, with what they hold, and the links, with what they lead to.
fn texts(sources: &Path) -> Result<(Texts, Links), BuildError> {
    let (mut texts, mut links) = (Texts::new(), Links::new());
    for entry in fs::read_dir(sources).map_err(at(sources))? {
        let entry = entry.map_err(at(sources))?;
        let (name, path) = (entry.file_name(), entry.path());
        if name == COPIED {
            continue;
        }
        if path.is_dir() {
            links.insert(name.into(), path);
        } else {
            texts.insert(name.into(), fs::read(&path).map_err(at(&path))?);
        }
    }
    read_below(sources, Path::new(COPIED), &mut texts)?;
    for added in ADDED {
        if texts.insert(added.path.into(), added.text.into()).is_some() {
            return Err(unfit(sources, &format!("it has a file {} of its own", added.path)));
        }
    }
    for inserted in INSERTED {
        let text = texts.get_mut(Path::new(inserted.path));
        let text = text.ok_or_else(|| unfit(sources, &format!("it has no file {}", inserted.path)))?;
        *text = with(text, inserted).ok_or_else(|| {
            unfit(sources, &format!("{} does not have {:?} once", inserted.path, inserted.before.trim()))
        })?;
    }
    Ok((texts, links))
}

/// A file's text with the lines in it.
fn with(text: &[u8], Inserted { before, text: more, .. }: &Inserted) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let (start, end) = text.split_once(before)?;
    (!end.contains(before)).then(|| [start, more, before, end].concat().into())
}

fn read_below(sources: &Path, folder: &Path, texts: &mut Texts) -> Result<(), BuildError> {
    let from = sources.join(folder);
    for entry in fs::read_dir(&from).map_err(at(&from))? {
        let entry = entry.map_err(at(&from))?;
        let (path, inside) = (entry.path(), folder.join(entry.file_name()));
        if !path.is_dir() {
            texts.insert(inside, fs::read(&path).map_err(at(&path))?);
        } else if !LEFT_OUT.iter().any(|name| inside == Path::new(COPIED).join(name)) {
            read_below(sources, &inside, texts)?;
        }
    }
    Ok(())
}

fn make_folder_of(file: &Path) -> Result<(), BuildError> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(at(folder))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |error| BuildError::Io { path, error }
}

fn unfit(sources: &Path, why: &str) -> BuildError {
    BuildError::OtherLibrary {
        sources: sources.into(),
        why: why.into(),
        supported: format!("{}.{}", SUPPORTED.0, SUPPORTED.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::Toolchain;

    const LINES: Inserted = Inserted { path: "", before: "b\n", text: "new\n" };

    #[test]
    fn lines_go_to_the_one_place_that_they_belong_to() {
        assert_eq!(with(b"a\nb\nc\n", &LINES).unwrap(), b"a\nnew\nb\nc\n");
        assert_eq!(with(b"a\nc\n", &LINES), None);
        assert_eq!(with(b"b\nb\n", &LINES), None);
        assert_eq!(with(b"b\n\xff", &LINES), None);
    }

    /// Of the library that is here, or nobody would see that it has changed.
    #[test]
    fn the_layer_fits_this_library() {
        let Ok(toolchain) = Toolchain::with_sources(&crate::Target::Cpu) else { return };
        let sources = toolchain.library.unwrap();
        let cache = std::env::temp_dir().join(format!("hostcall-library-{}", std::process::id()));
        let copy = patched(&sources, toolchain.version, &cache).unwrap();
        let file = copy.join(INSERTED[0].path);
        assert!(fs::read_to_string(&file).unwrap().contains(INSERTED[0].text));
        assert!(copy.join("core/src/lib.rs").exists() && copy.join(ADDED[0].path).exists());
        // What is there is not written again: cargo would compile it anew.
        let written = file.metadata().unwrap().modified().unwrap();
        assert_eq!(patched(&sources, toolchain.version, &cache).unwrap(), copy);
        assert_eq!(file.metadata().unwrap().modified().unwrap(), written);
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn another_library_is_refused_in_one_sentence() {
        let folder = std::env::temp_dir().join(format!("hostcall-other-library-{}", std::process::id()));
        fs::create_dir_all(folder.join("std/src")).unwrap();
        for (version, says) in [
            (Some((1, 95)), "it is of another version"),
            (None, "it is of another version"),
            (Some(SUPPORTED), "it has no file std/build.rs"),
        ] {
            let refused = patched(&folder, version, &folder.join("cache")).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.lines().count() == 1, "{refused}");
        }
        fs::write(folder.join("std/build.rs"), "").unwrap();
        let refused = patched(&folder, Some(SUPPORTED), &folder.join("cache")).unwrap_err().to_string();
        assert!(refused.contains("std/build.rs does not have"), "{refused}");
        assert!(!folder.join("cache").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
