//! Images: kernels compiled for a device, from files, from bytes, and embedded in the program.
#![allow(unsafe_code, reason = "a kernel's description is read from the image's memory")]

use super::core::Core;
use super::error::{Error, ImageError};
use super::grid::Grid;
use super::grid::dispatch_workgroup_bytes;
use crate::image::{self, Calls, ImageInfo, KernelSymbol, MAX_IMAGE_BYTES};
use hostcall_abi::launch::{KernelInfo, kernel_path};
use hostcall_abi::layout::MAGIC;
use hostcall_device::kernel::Kernel;
use hostcall_locks::Mutex;
use hostcall_seam::{DeviceKind, ImageSource, Kernel as Code, KernelLimits, Module};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image that is part of a program. [`crate::embedded_images`] gives those that the program's build script built.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedImage {
    /// What it was built for: `sm_90`, `gfx90a`.
    pub target: &'static str,
    /// The image.
    pub bytes: &'static [u8],
}

/// Returns the images that the package's build script embedded, for [`DeviceBuilder::images`](crate::device::DeviceBuilder::images).
///
/// The package's `build.rs` has `hostcall_build::Kernels::new("kernels").embed()`, with the folder of the kernels' package, and
/// its Cargo.toml has `hostcall-build` among the build dependencies.
#[macro_export]
macro_rules! embedded_images {
    () => {
        include!(concat!(
            env!(
                "OUT_DIR",
                "`embedded_images!` needs a build script: write `hostcall_build::Kernels::new(\"kernels\").embed()` into \
                 build.rs, and `hostcall-build` into the build-dependencies of Cargo.toml"
            ),
            "/hostcall_images.rs"))
    };
}

/// A loaded image.
#[derive(Clone)]
pub struct Image {
    shared: Arc<Loaded>,
}

struct Loaded {
    core: Arc<Core>,
    module: Arc<dyn Module>,
    /// Its kernels, ordered by name.
    symbols: Vec<KernelSymbol>,
    kernels: Mutex<HashMap<String, LoadedKernel>>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("kernels", &self.shared.symbols).finish_non_exhaustive()
    }
}

/// A kernel of an image.
#[derive(Clone)]
pub struct LoadedKernel {
    pub(super) core: Arc<Core>,
    pub(super) name: Arc<str>,
    pub(super) code: Arc<dyn Code>,
    pub(super) info: KernelInfo,
}

impl fmt::Debug for LoadedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedKernel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A kernel of an image whose parameters are those of the tuple `P`.
pub struct TypedKernel<P> {
    pub(super) kernel: LoadedKernel,
    parameters: std::marker::PhantomData<fn(P)>,
}

impl<P> Clone for TypedKernel<P> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), parameters: self.parameters }
    }
}

impl<P> fmt::Debug for TypedKernel<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Reads an image's file. The path is taken literally.
///
/// # Errors
/// When it is no regular file, is too large, or cannot be read.
pub(crate) fn read_image(path: &Path) -> Result<(PathBuf, Vec<u8>), ImageError> {
    let failed = |error| ImageError::Read { path: path.to_owned(), error };
    let refused = |why: &str| failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    let too_large = || refused("it is larger than 1 GiB");
    let file = std::fs::metadata(path).map_err(failed)?;
    if !file.is_file() {
        return Err(refused("it is no regular file"));
    }
    if file.len() > MAX_IMAGE_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(file.len() as usize);
    // Files of the system may say that they are short and never end.
    File::open(path)
        .and_then(|file| file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        return Err(too_large());
    }
    // Absolute, so that no loader takes it for a name to search for.
    Ok((std::path::absolute(path).map_err(failed)?, bytes))
}

pub(crate) fn load(core: &Arc<Core>, name: &str, source: ImageSource<'_>) -> Result<Image, ImageError> {
    let ImageInfo { target, calls } = image::identify(source.bytes())
        .map_err(|error| ImageError::NotAnImage { name: name.into(), error })?;
    let properties = core.backend.properties();
    if !target.runs_on(&properties.target) {
        return Err(ImageError::OtherTarget {
            name: name.into(),
            built_for: target.to_string(),
            device: core.name.clone(),
            target: properties.target.clone(),
        });
    }
    let Calls::Hostcall(symbols) = calls else { return Err(ImageError::NoKernels { name: name.into() }) };
    let module = core.load(source).map_err(|error| ImageError::Load { name: name.into(), error })?;
    let shared = Loaded { core: core.clone(), module, symbols, kernels: Mutex::default() };
    Ok(Image { shared: Arc::new(shared) })
}

impl Loaded {
    /// Loads the kernel that `wanted` names: by its name alone where no other kernel of the image has that, or by its
    /// path, as `shop::stock::count`.
    fn load_kernel(&self, wanted: &str) -> Result<LoadedKernel, Error> {
        let missing = || ImageError::NoKernel { kernel: wanted.to_owned() };
        let name = wanted.rsplit("::").next().unwrap_or(wanted);
        let mut found = Vec::new();
        for symbol in self.symbols.iter().filter(|symbol| symbol.name() == name) {
            let info = self.module.variable(&symbol.info())?.ok_or_else(missing)?;
            let mut bytes = vec![0; info.bytes.min(size_of::<KernelInfo>())];
            // SAFETY: the module says that the variable lies there, which nobody writes.
            unsafe { self.core.backend.read_now(info.address, &mut bytes) }?;
            let info = kernel_info(&bytes).ok_or(ImageError::OtherVersion)?;
            if name == wanted || info.path == kernel_path(wanted) {
                found.push((symbol, info));
            }
        }
        let (symbol, info) = match found[..] {
            [found] => found,
            [] => return Err(missing().into()),
            _ => {
                let (kernel, count) = (wanted.to_owned(), found.len());
                return Err(ImageError::SeveralKernels { kernel, count }.into());
            }
        };
        let code = self.module.kernel(&symbol.entry())?.ok_or_else(missing)?;
        Ok(LoadedKernel { core: self.core.clone(), name: name.into(), code, info })
    }
}

impl Image {
    /// Returns the names of its kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.shared.symbols.iter().map(KernelSymbol::name)
    }

    /// Finds a kernel by its name, or by its path, as `shop::stock::count`.
    ///
    /// # Errors
    /// When the image has none of this name, or several, or was made by another version.
    pub fn kernel(&self, name: &str) -> Result<LoadedKernel, Error> {
        let mut kernels = self.shared.kernels.lock();
        match kernels.entry(name.to_owned()) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(new) => Ok(new.insert(self.shared.load_kernel(name)?).clone()),
        }
    }

    /// Finds the kernel of this image with the name and the types of `kernel`.
    ///
    /// # Errors
    /// As for [`Image::kernel`], and when the image's kernel takes other arguments.
    pub fn typed<P>(&self, kernel: &Kernel<P>) -> Result<TypedKernel<P>, Error> {
        let loaded = match self.kernel(kernel.path()) {
            // The image was built from another crate, as one that holds a copy of the kernels.
            Err(Error::Image(ImageError::NoKernel { .. })) => self.kernel(kernel.name())?,
            found => found?,
        };
        if loaded.info.schema != kernel.info().schema {
            return Err(ImageError::OtherTypes { kernel: kernel.name().to_owned() }.into());
        }
        Ok(TypedKernel { kernel: loaded, parameters: std::marker::PhantomData })
    }
}

impl LoadedKernel {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the image says of the kernel.
    pub fn info(&self) -> &KernelInfo {
        &self.info
    }

    /// Returns what the kernel needs of the device, and what a launch may ask for.
    pub fn limits(&self) -> KernelLimits {
        self.code.limits()
    }

    /// Returns how many workgroups of the size of `grid`'s the device runs at once: a good number for a kernel whose lanes
    /// share out work of any size. Where the device does not say, as the software device does not, it is eight for each
    /// of its multiprocessors or threads.
    pub fn resident_workgroups(&self, grid: Grid) -> u32 {
        let (properties, lanes) = (self.core.backend.properties(), grid.workgroup_lanes());
        let many = Grid { workgroups: [u32::MAX; 3], ..grid };
        let bytes = dispatch_workgroup_bytes(properties, &self.code.limits(), &self.info, &many);
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
        self.code.resident_workgroups(lanes, bytes).unwrap_or(8 * properties.multiprocessors).max(1)
    }
}

impl<P> TypedKernel<P> {
    /// Returns the kernel without its types.
    pub fn untyped(&self) -> &LoadedKernel {
        &self.kernel
    }
}

/// Reads the words of a [`KernelInfo`]; `None` when another version of hostcall wrote them.
fn kernel_info(bytes: &[u8]) -> Option<KernelInfo> {
    if bytes.len() != size_of::<KernelInfo>() {
        return None;
    }
    // SAFETY: as many bytes as the struct has, which is made of numbers.
    let info = unsafe { bytes.as_ptr().cast::<KernelInfo>().read_unaligned() };
    (info.magic == MAGIC && info.abi_version == u64::from(hostcall_abi::ABI_VERSION)).then_some(info)
}

/// The images that a device looks for kernels in.
#[derive(Default)]
pub(crate) struct Images(Mutex<Registered>);

#[derive(Default)]
pub(crate) struct Registered {
    loaded: Vec<Image>,
    /// Targets of images that are for other devices.
    others: Vec<&'static str>,
    /// Kernels that were found, by path and types.
    found: BTreeMap<(u64, u64), Arc<LoadedKernel>>,
}

impl Registered {
    pub fn push(&mut self, image: Image) {
        // It comes before those that were there.
        self.found.clear();
        self.loaded.push(image);
    }
}

impl Images {
    pub fn images(&self) -> hostcall_locks::MutexGuard<'_, Registered> {
        self.0.lock()
    }

    /// Loads the best of the images for the device that it takes, unless it runs the program's own kernels. A driver older than
    /// what made a cubin refuses it and takes PTX.
    pub fn add(&self, core: &Arc<Core>, images: &[EmbeddedImage]) -> Result<(), ImageError> {
        let properties = core.backend.properties();
        if properties.kind == DeviceKind::Software {
            return Ok(());
        }
        let mut refused = None;
        for EmbeddedImage { target, bytes } in best_first(images, &properties.target) {
            match load(core, &format!("the program's image for {target}"), ImageSource::Bytes(bytes)) {
                Ok(image) => {
                    self.images().push(image);
                    return Ok(());
                }
                Err(error) => _ = refused.get_or_insert(error),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        self.images().others.extend(images.iter().map(|image| image.target));
        Ok(())
    }

    /// Finds the kernel with the name and the types of `kernel`.
    pub fn find<P>(&self, core: &Core, kernel: &Kernel<P>) -> Result<Arc<LoadedKernel>, Error> {
        let mut images = self.images();
        let key = (kernel.info().path, kernel.info().schema);
        if let Some(found) = images.found.get(&key) {
            return Ok(found.clone());
        }
        let mut other_types = None;
        let mut found = None;
        for image in images.loaded.iter().rev() {
            match image.typed(kernel) {
                Ok(typed) => {
                    found = Some(Arc::new(typed.kernel));
                    break;
                }
                Err(Error::Image(ImageError::NoKernel { .. })) => {}
                Err(error) => other_types = Some(error),
            }
        }
        if let Some(found) = found {
            images.found.insert(key, found.clone());
            return Ok(found);
        }
        if let Some(error) = other_types {
            return Err(error);
        }
        let target = core.backend.properties().target.clone();
        let hint = if !images.loaded.is_empty() {
            "the program's images for this device do not have it; write it in the package that is embedded"
                .to_owned()
        } else if target == "cpu" {
            // No build of the program embeds such images: `cpu` runs the program's own kernels.
            "its backend does not run the program's own kernels; load an image that `hostcall build --target cpu` \
             built, or open cpu"
                .to_owned()
        } else if images.others.is_empty() {
            format!(
                "the program has no images; build it with HOSTCALL_TARGETS={target} if it gives \
                 `Device::builder(..).images(hostcall::embedded_images!())`, or load one that `hostcall build --target {target}` built"
            )
        } else {
            format!(
                "the program has images for {}; build it with HOSTCALL_TARGETS={target}",
                images.others.join(", ")
            )
        };
        let kernel = kernel.name().to_owned();
        Err(ImageError::NotEmbedded { kernel, device: core.name.clone(), target, hint }.into())
    }
}

/// The images that a device runs which takes code for `target`, those first that use most of what it can do.
fn best_first<'a>(images: &'a [EmbeddedImage], target: &str) -> Vec<&'a EmbeddedImage> {
    let runs = images.iter().filter_map(|image| {
        let info = image::identify(image.bytes).ok().filter(|info| info.target.runs_on(target))?;
        Some((info.target.rank(), image))
    });
    let mut runs: Vec<_> = runs.collect();
    runs.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    runs.into_iter().map(|(_, image)| image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Grid, LaunchKernel};

    #[test]
    fn the_best_of_several_images_is_chosen() {
        let image = |target, text: &'static str| EmbeddedImage { target, bytes: text.as_bytes() };
        let images = [
            image("sm_80", ".version 8.0\n.target sm_80\n"),
            image("sm_90", ".version 8.0\n.target sm_90, debug\n"),
            image("sm_90a", ".version 8.0\n.target sm_90a, debug\n"),
            image("sm_70", ".version 8.0\n.target sm_70\n"),
            image("gfx90a", "no image"),
        ];
        let chosen = |target| best_first(&images, target).first().map(|image| image.target);
        assert_eq!(chosen("sm_120"), Some("sm_90"));
        assert_eq!(chosen("sm_90"), Some("sm_90a"));
        assert_eq!(chosen("sm_89"), Some("sm_80"));
        assert_eq!(chosen("sm_75"), Some("sm_70"));
        assert_eq!(chosen("sm_60"), None);
    }

    #[test]
    fn images_are_added_while_the_device_is_open() {
        let images = [EmbeddedImage { target: "sm_90", bytes: b".version 8.0\n.target sm_90\n" }];
        let launch = |name| {
            let device = Device::open(name).unwrap();
            device.add_images(&images).unwrap();
            let stream = device.stream().unwrap();
            nothing.launch(&stream, Grid::new(1, 1), ()).map_err(|error| error.to_string())?;
            stream.synchronize().map_err(|error| error.to_string())
        };
        assert_eq!(launch("cpu"), Ok(()));
        // None of them is for it, and a launch says which there are.
        let error = launch("gfx942").unwrap_err();
        assert!(error.contains("sm_90"), "{error}");
    }

    #[hostcall_device::kernel]
    fn nothing(_lane: &hostcall_device::Lane) {}

    #[test]
    fn kernels_of_another_device_are_refused() {
        let (here, there) = (Device::open("cpu").unwrap(), Device::open("cpu").unwrap());
        let core = there.inner.core.clone();
        let code = core.backend.native_kernel(nothing.entry()).unwrap();
        let loaded = LoadedKernel { core, name: nothing.name().into(), code, info: *nothing.info() };
        let typed = TypedKernel::<()> { kernel: loaded.clone(), parameters: std::marker::PhantomData };
        let (stream, theirs) = (here.stream().unwrap(), there.stream().unwrap());
        let one = Grid::new(1, 1);
        assert!(matches!(loaded.launch(&stream, one), Err(Error::OtherDevice { .. })));
        assert!(matches!(typed.launch(&stream, one, ()), Err(Error::OtherDevice { .. })));
        loaded.launch(&theirs, one).unwrap();
        typed.launch(&theirs, one, ()).unwrap();
        theirs.synchronize().unwrap();
    }

    #[test]
    fn endless_files_are_not_read() {
        // It says that it is a regular file of no bytes, and has one of the machine's memory map.
        assert!(matches!(read_image(Path::new("/dev/zero")), Err(ImageError::Read { .. })));
        let (path, bytes) = read_image(Path::new("/proc/self/maps")).unwrap();
        assert!(path.is_absolute() && !bytes.is_empty());
    }

    #[test]
    fn infos_of_other_versions_are_refused() {
        let mut words = vec![0u64; size_of::<KernelInfo>() / 8];
        words[0] = MAGIC;
        words[1] = hostcall_abi::ABI_VERSION.into();
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        assert!(kernel_info(&bytes(&words)).is_some());
        for at in 0..2 {
            let mut other = words.clone();
            other[at] += 1;
            assert!(kernel_info(&bytes(&other)).is_none());
        }
        assert!(kernel_info(&bytes(&words[1..])).is_none());
        assert!(kernel_info(&[]).is_none());
    }
}
