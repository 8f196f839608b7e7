//! Makes a copy of the library's sources with the platform layer in it. What the layer leaves as it is is a link in the copy.

use super::layer::{ADDED, HIDDEN, INSERTED, Inserted};
use crate::BuildError;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The version of Rust whose library the layer fits.
const SUPPORTED: (u32, u32) = (1, 96);

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

/// The files of the copy, with what they hold, and the links, with what they lead to: a folder in which nothing changes, and a
/// file that does not, is a link.
fn texts(sources: &Path) -> Result<(Texts, Links), BuildError> {
    let mut texts = Texts::new();
    for added in ADDED {
        if sources.join(added.path).exists() {
            return Err(unfit(sources, &format!("it has a file {} of its own", added.path)));
        }
        texts.insert(added.path.into(), added.text.into());
    }
    for inserted in INSERTED.iter().chain(HIDDEN) {
        let path = sources.join(inserted.path);
        let text = match texts.entry(inserted.path.into()) {
            Entry::Occupied(text) => text.into_mut(),
            Entry::Vacant(place) => place.insert(match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(unfit(sources, &format!("it has no file {}", inserted.path)));
                }
                read => read.map_err(at(&path))?,
            }),
        };
        *text = with(text, inserted).ok_or_else(|| {
            unfit(sources, &format!("{} does not have {:?} once", inserted.path, inserted.before.trim()))
        })?;
    }
    let folders: BTreeSet<PathBuf> =
        texts.keys().flat_map(|path| path.ancestors().skip(1)).map(Path::to_owned).collect();
    let mut links = Links::new();
    for folder in &folders {
        let from = sources.join(folder);
        let entries = match fs::read_dir(&from) {
            // It is the layer's own.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(at(&from))?,
        };
        for entry in entries {
            let entry = entry.map_err(at(&from))?;
            let (path, inside) = (entry.path(), folder.join(entry.file_name()));
            if texts.contains_key(&inside) || folders.contains(&inside) {
                continue;
            }
            if folder == Path::new("") && path.is_file() {
                // Cargo may write its lock file.
                texts.insert(inside, fs::read(&path).map_err(at(&path))?);
            } else {
                links.insert(inside, path);
            }
        }
    }
    Ok((texts, links))
}

/// A file's text with the lines in it.
fn with(text: &[u8], Inserted { before, text: more, .. }: &Inserted) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let (start, end) = text.split_once(before)?;
    (!end.contains(before)).then(|| [start, more, before, end].concat().into())
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
        for Inserted { path, text, .. } in INSERTED.iter().chain(HIDDEN) {
            assert!(fs::read_to_string(copy.join(path)).unwrap().contains(text), "{path}: {text}");
        }
        assert!(copy.join("core/src/lib.rs").exists() && copy.join(ADDED[0].path).exists());
        assert!(copy.join("core/src/num").is_symlink() && !copy.join("core/src").is_symlink());
        let file = copy.join(INSERTED[0].path);
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
