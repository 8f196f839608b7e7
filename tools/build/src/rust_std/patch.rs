//! Makes a copy of the library's sources with the platform layer in it. What the layer leaves as it is is a link in the copy.

use super::layer::{ADDED, HIDDEN, INSERTED, Inserted, MATHEMATICS};
use crate::BuildError;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The version of Rust whose library the layer fits.
const SUPPORTED: (u32, u32) = (1, 96);

/// A copy of the library with the layer: its files, with what they hold, and its links, with what they lead
/// to. A folder in which nothing changes, and a file that does not, is a link.
#[derive(Hash)]
pub struct Copy {
    texts: Texts,
    links: Links,
}

impl Copy {
    /// Puts the layer into the library in `sources`.
    ///
    /// # Errors
    /// A library that the layer does not fit; files that cannot be read.
    pub fn of(sources: &Path, version: Option<(u32, u32)>) -> Result<Self, BuildError> {
        if version != Some(SUPPORTED) {
            return Err(unfit(sources, "it is of another version"));
        }
        let (texts, links) = texts(sources)?;
        Ok(Self { texts, links })
    }

    /// Writes it into a folder, which has none.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), BuildError> {
        for (path, target) in &self.links {
            let link = folder.join(path);
            make_folder_of(&link)?;
            symlink(target, &link).map_err(at(&link))?;
        }
        for (path, text) in &self.texts {
            let file = folder.join(path);
            make_folder_of(&file)?;
            fs::write(&file, text).map_err(at(&file))?;
        }
        Ok(())
    }
}

type Texts = BTreeMap<PathBuf, Vec<u8>>;
type Links = BTreeMap<PathBuf, PathBuf>;

/// Returns the files and links of a copy of the library in `sources`.
fn texts(sources: &Path) -> Result<(Texts, Links), BuildError> {
    let mut texts = Texts::new();
    for added in ADDED {
        if sources.join(added.path).exists() {
            return Err(unfit(sources, &format!("it has a file {} of its own", added.path)));
        }
        texts.insert(added.path.into(), added.text.into());
    }
    for inserted in INSERTED.iter().chain(HIDDEN).chain(MATHEMATICS) {
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
        let sources = toolchain.library.as_ref().unwrap();
        let folder = std::env::temp_dir().join(format!("hostcall-library-{}", std::process::id()));
        Copy::of(sources, toolchain.version()).unwrap().write(&folder).unwrap();
        for Inserted { path, text, .. } in INSERTED.iter().chain(HIDDEN).chain(MATHEMATICS) {
            assert!(fs::read_to_string(folder.join(path)).unwrap().contains(text), "{path}: {text}");
        }
        assert!(folder.join("core/src/lib.rs").exists() && folder.join(ADDED[0].path).exists());
        assert!(folder.join("core/src/str").is_symlink() && !folder.join("core/src").is_symlink());
        fs::remove_dir_all(&folder).unwrap();
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
            let refused = Copy::of(&folder, version).err().unwrap().to_string();
            assert!(refused.contains(says) && refused.lines().count() == 1, "{refused}");
        }
        fs::write(folder.join("std/build.rs"), "").unwrap();
        let refused = Copy::of(&folder, Some(SUPPORTED)).err().unwrap().to_string();
        assert!(refused.contains("std/build.rs does not have"), "{refused}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
