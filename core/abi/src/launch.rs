//! What the host passes to every kernel besides the kernel's own arguments.

use crate::layout::{LAUNCHES, Layout, Places, Sizes, WAVE_RECORD_BYTES};

/// A launch, as both sides name it: an index into the host's table of launches, and a generation that tells the
/// launches apart which have had the index. [`LaunchId::NONE`] is no launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct LaunchId(u32);

impl LaunchId {
    /// No launch has this id.
    pub const NONE: Self = Self(0);

    /// Bits of the index.
    pub const INDEX_BITS: u32 = LAUNCHES.ilog2();

    /// The last generation; the first is 1, so that no launch's id is 0.
    pub const LAST_GENERATION: u32 = (1 << (32 - Self::INDEX_BITS)) - 1;

    /// The id of the launch with this index (less than [`LAUNCHES`]) and generation (1 to
    /// [`LaunchId::LAST_GENERATION`]).
    #[inline(always)]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self(index & (LAUNCHES - 1) | generation << Self::INDEX_BITS)
    }

    /// The id with these bits, of a launch or of none.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The id's bits.
    #[inline(always)]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Index in the host's table, less than [`LAUNCHES`].
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.0 & (LAUNCHES - 1)
    }

    /// Which of the launches that have had the index; 0 for [`LaunchId::NONE`].
    #[inline(always)]
    pub const fn generation(self) -> u32 {
        self.0 >> Self::INDEX_BITS
    }
}

/// `17.3` is the third launch with index 17.
impl core::fmt::Display for LaunchId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.index(), self.generation())
    }
}

/// Launches in a row: their indices follow each other, and their generation is the same. So their ids' bits follow each other
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchIds {
    first: LaunchId,
    count: u32,
}

impl LaunchIds {
    /// The launches from `first` on, `count` of them, with indices of at most [`LAUNCHES`] - 1.
    pub const fn new(first: LaunchId, count: u32) -> Self {
        Self { first, count }
    }

    /// The first launch.
    pub const fn first(self) -> LaunchId {
        self.first
    }

    /// How many launches there are.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// The launch with this place, from 0 and less than [`LaunchIds::count`].
    pub const fn get(self, place: u32) -> LaunchId {
        LaunchId(self.first.0 + place)
    }

    /// The launches in order.
    pub fn ids(self) -> impl Iterator<Item = LaunchId> {
        (0..self.count).map(move |place| self.get(place))
    }

    /// The launch's place, if it is one of them.
    pub const fn place_of(self, id: LaunchId) -> Option<u32> {
        let place = id.0.wrapping_sub(self.first.0);
        if place < self.count { Some(place) } else { None }
    }

    /// Whether the launch is one of them.
    pub const fn contains(self, id: LaunchId) -> bool {
        self.place_of(id).is_some()
    }
}

/// One launch.
impl From<LaunchId> for LaunchIds {
    fn from(launch: LaunchId) -> Self {
        Self::new(launch, 1)
    }
}

/// What a device's memory for buffers is aligned to, on each device.
pub const BUFFER_ALIGN: usize = 256;

/// First kernel argument of every hostcall kernel, by value. Addresses are the device's. Each wave keeps the first
/// [`LAUNCH_PARAMS_KEPT`] bytes in its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct LaunchParams {
    /// The channel's [`ChannelParams`], in memory of the device, and right behind them a
    /// [`crate::layout::HomeSlotWords`] for each home slot.
    pub channel: u64,
    /// Two `u64` in memory of the device, two a stream and aligned to 16 bytes: kernels whose `sequence` is one of these or
    /// more return when they begin. Lanes write the first, the host the second. On GPUs the first wave of a kernel
    /// that returns so lowers the first to the `sequence` before its own, if that is less: the last that ran.
    pub stop_at: u64,
    /// Place of the launch in its stream, counted up by the host.
    pub sequence: u64,
    /// The launch. `list` changes it and `sequence`, so that only the second 16 bytes may be others than the host gave.
    pub launch: LaunchId,
    /// Home slots of the channel, whose records follow its parameters.
    pub home_slots: u32,
    /// A `u64` in the host's memory, one a stream: the first post of a wave stores its launch's `sequence` there.
    pub last_post: u64,
    /// Workgroups in x, y and z. The hardware's grid has one dimension, x fastest.
    pub workgroups: [u32; 3],
    /// Bytes of workgroup memory that the kernel may use.
    pub workgroup_memory_bytes: u32,
    /// Lanes of a workgroup in x, y and z, at most 1024 in all. The hardware's workgroup has one dimension too.
    pub workgroup_size: [u16; 3],
    /// Zero.
    pub reserved: u16,
    /// AMD: memory of the device for the records of the grid's waves: for each workgroup those of its waves, rounded up to
    /// 64 bytes. Else 0.
    pub wave_records: u64,
    /// Two `u64` in memory of the device, aligned to 16 bytes: what is added to `sequence`, and to the bits of `launch`. They
    /// are those of the first of several launches that the device takes at once, again and again; `sequence` and `launch`
    /// are the places among these, from 0. While the upper half of the second is not 0, launches of the list do nothing: a
    /// body that is repeated is over ([`LIST_SKIPS_AT`]). 0 for a launch that is given by itself. The address's lowest bit is
    /// [`FOLLOWS_ONE_THAT_NEVER_STOPS`].
    pub list: u64,
}

impl LaunchParams {
    /// The parameters as they lie in memory, by words of 8 bytes.
    #[inline(always)]
    pub const fn to_words(&self) -> [u64; LAUNCH_PARAMS_BYTES / 8] {
        const fn halves(low: u32, high: u32) -> u64 {
            low as u64 | (high as u64) << 32
        }
        let ([x, y, z], [width, height, depth]) = (self.workgroups, self.workgroup_size);
        [
            self.channel,
            self.stop_at,
            self.sequence,
            halves(self.launch.to_bits(), self.home_slots),
            self.last_post,
            halves(x, y),
            halves(z, self.workgroup_memory_bytes),
            width as u64 | (height as u64) << 16 | (depth as u64) << 32 | (self.reserved as u64) << 48,
            self.wave_records,
            self.list,
        ]
    }
}

/// Bit of [`LaunchParams::list`]: the launch follows, in the list, one of a kernel that never stops its stream
/// ([`NEVER_STOPS`]). So what stopped the stream is known before that one has ended.
pub const FOLLOWS_ONE_THAT_NEVER_STOPS: u64 = 1;

/// Where the `u32` lies among the words of [`LaunchParams::list`] that says that launches of the list do nothing: the upper
/// half of the second word.
pub const LIST_SKIPS_AT: u64 = 12;

/// Bytes of [`LaunchParams`].
pub const LAUNCH_PARAMS_BYTES: usize = 80;

/// Bytes of [`LaunchParams`] that a wave's record keeps on NVIDIA, where `list` is looked up when the wave begins: all but
/// AMD's part and that.
pub const LAUNCH_PARAMS_KEPT: usize = 64;

const _: () = assert!(size_of::<LaunchParams>() == LAUNCH_PARAMS_BYTES);
const _: () = assert!(core::mem::offset_of!(LaunchParams, wave_records) == LAUNCH_PARAMS_KEPT);
const _: () = assert!(core::mem::offset_of!(LaunchParams, sequence) == 16);
const _: () = assert!(core::mem::offset_of!(LaunchParams, launch) == 24);

/// What kernels have to know of the channel: the same for all of its launches, in memory of the device. A wave that
/// claims a home slot and calls does without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct ChannelParams {
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// Unique for each device that this process opens: what a static of a kernel remembers of one channel (ids of formats)
    /// does not hold for another. Never 0.
    pub epoch: u32,
    /// The channel's shared memory, [`Layout::words`] words.
    pub region: u64,
    /// A [`crate::layout::HomeSlotWords`] for each home slot, in memory of the device: [`HOME_SLOTS_AT`] bytes behind the start of
    /// these parameters, where a wave that claims one looks without reading this.
    pub homes: u64,
    /// A [`crate::layout::SlotStateWords`] for each extra slot, in memory of the device.
    pub extra_states: u64,
    /// Bitmap of the extra slots that are taken, in `u64`s, in memory of the device.
    pub extras: u64,
    /// Bitmap of the large areas that are taken, in `u64`s, in memory of the device.
    pub areas: u64,
    /// The device's [`WaitParams`](crate::waits::WaitParams); 0 where waits are not told.
    pub waits: u64,
    /// The channel's sizes.
    pub sizes: Sizes,
    /// Zeros.
    pub reserved: u64,
}

/// Where the channel's [`PointSwitch`](crate::trace::PointSwitch) lies, in bytes from its [`ChannelParams`]. It is no part of
/// these, since the host changes it while kernels run. [`SHARED_SWITCH_BYTES`] may be read there.
pub const POINT_SWITCH_AT: usize = size_of::<ChannelParams>();

/// Where the records of home slots lie, in bytes from the [`ChannelParams`].
pub const HOME_SLOTS_AT: usize = POINT_SWITCH_AT + align_of::<ChannelParams>();

const _: () = assert!(HOME_SLOTS_AT.is_multiple_of(align_of::<crate::layout::HomeSlotWords>()));

const _: () = assert!(size_of::<Sizes>() == size_of::<Layout>() + size_of::<Places>());

/// Bytes of a wave's record on NVIDIA, with the launch's parameters.
pub const SHARED_RECORD_BYTES: usize = WAVE_RECORD_BYTES + LAUNCH_PARAMS_KEPT;

/// Bytes at the start of a workgroup's shared memory on NVIDIA for a copy of the channel's
/// [`PointSwitch`](crate::trace::PointSwitch): what an asynchronous copy that bypasses the L1 cache brings at least.
pub const SHARED_SWITCH_BYTES: usize = 16;

/// Bytes that the device crate keeps at the start of a workgroup's shared memory on NVIDIA: the switch's copy, and a record for
/// each wave.
pub const fn shared_bytes(waves: u32) -> u32 {
    (SHARED_SWITCH_BYTES + waves as usize * SHARED_RECORD_BYTES).next_multiple_of(64) as u32
}

/// Bytes at the end of a workgroup's dynamic shared memory through which each of its `waves` waves copies bytes of the host's,
/// if a launch gives `dynamic` bytes of which the kernel may use `kernel`; a multiple of [`STAGING_ALIGN`], and 0 if it has not
/// [`LEAST_STAGING_BYTES`]. Those of the first wave begin at the place that comes with it.
pub const fn staging_bytes(dynamic: u32, waves: u32, kernel: u32) -> (u32, u32) {
    let start = shared_bytes(waves).saturating_add(kernel).next_multiple_of(STAGING_ALIGN);
    let each = dynamic.saturating_sub(start) / waves / STAGING_ALIGN * STAGING_ALIGN;
    (start, if each < LEAST_STAGING_BYTES { 0 } else { each })
}

/// Alignment of [`staging_bytes`]: a cache line of a GPU's.
pub const STAGING_ALIGN: u32 = 128;

/// Least bytes through which a wave copies: with less, it copies more slowly than the host does. In the first
/// [`STAGING_ALIGN`] it notes what is there.
pub const LEAST_STAGING_BYTES: u32 = STAGING_ALIGN + 1024;

/// Bytes that the device crate keeps at the start of a kernel's workgroup memory for itself.
pub const RESERVED_WORKGROUP_BYTES: usize = 64;

/// A slice argument as it lies in the argument block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RawSlice {
    /// Device address of the first element.
    pub address: u64,
    /// Elements.
    pub len: u64,
}

/// What an image says of one kernel: the words of an exported static, whose symbol [`kernel_name`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KernelInfo {
    /// [`crate::layout::MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`].
    pub abi_version: u64,
    /// Hash of the argument types, see [`crate::schema`].
    pub schema: u64,
    /// Bytes of the argument block.
    pub argument_bytes: u64,
    /// Workgroups in x to launch when nobody says otherwise (programs); 0 for an ordinary kernel, and for a program that
    /// takes as many as the device runs at once.
    pub default_workgroups: u64,
    /// Lanes a workgroup in x to launch when nobody says otherwise.
    pub default_lanes: u64,
    /// Bytes of workgroup memory that the kernel asks for.
    pub workgroup_memory_bytes: u64,
    /// Most lanes that a workgroup may have; 0 for as many as devices take.
    pub max_lanes: u64,
    /// What the build has found in the kernel's code: [`NEVER_STOPS`] and [`PULLS`].
    pub found: u64,
    /// Hash of the kernel's path, `crate::module::name`: it tells kernels of the same name apart.
    pub path: u64,
}

/// Bit of [`KernelInfo::found`]: no lane of the kernel stops its stream, which only calls and panics do.
pub const NEVER_STOPS: u64 = 1;

/// Bit of [`KernelInfo::found`]: lanes of the kernel copy bytes of the host's memory through the workgroup's, if the launch gives
/// it some for that: what it has besides its waves' records and [`LaunchParams::workgroup_memory_bytes`].
pub const PULLS: u64 = 2;

/// Name of the kernel that a program's `#[main]` makes.
pub const MAIN_KERNEL: &str = "main";

/// Prefix of the symbol of a kernel's entry. The rest of the symbol is that of the kernel's [`KernelInfo`].
pub const KERNEL_SYMBOL_PREFIX: &str = "hostcall_kernel_";

/// Prefix of the symbol of a kernel's [`KernelInfo`]. [`kernel_name`] describes the rest.
pub const KERNEL_INFO_SYMBOL_PREFIX: &str = "hostcall_kernel_info_";

/// Symbol of an image's variable of 8 bytes that says how many bytes of stack those of its kernels need whose calls the linker
/// cannot count. An image without it was not made by hostcall's build.
pub const STACK_BYTES_SYMBOL: &str = "hostcall_stack_bytes";

/// Registers that a function of an image gets on NVIDIA at most, which is compiled by itself and shared by all kernels that call
/// it. Each kernel gets at least as many: with more, a multiprocessor would hold fewer waves of the smallest ones.
pub const FUNCTION_REGISTERS: u32 = 32;

/// Hexadecimal digits at the end of a kernel's symbols.
const SUFFIX_DIGITS: usize = 8;

/// Returns the name of the kernel to whose info this symbol belongs, or `None` when it belongs to none.
///
/// A kernel's two symbols end alike: `hostcall_kernel_<name>__<digits>` is its entry and
/// `hostcall_kernel_info_<name>__<digits>` its [`KernelInfo`]. The eight lower-case hexadecimal digits differ for
/// kernels of the same name in different modules and crates, so that such kernels can be linked into one image.
/// They say nothing else: a kernel's place in its program is [`KernelInfo::path`].
pub fn kernel_name(info_symbol: &str) -> Option<&str> {
    let (name, digits) = info_symbol.strip_prefix(KERNEL_INFO_SYMBOL_PREFIX)?.rsplit_once("__")?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (!name.is_empty() && digits.len() == SUFFIX_DIGITS && digits.bytes().all(is_digit)).then_some(name)
}

/// Returns [`KernelInfo::path`] of the kernel with this path, such as `shop::stock::count`.
pub const fn kernel_path(path: &str) -> u64 {
    crate::schema::of(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_ids_keep_index_and_generation() {
        for (index, generation) in [(0, 1), (LAUNCHES - 1, LaunchId::LAST_GENERATION), (77, 300)] {
            let id = LaunchId::new(index, generation);
            assert_eq!((id.index(), id.generation()), (index, generation));
            assert_eq!(LaunchId::from_bits(id.to_bits()), id);
            assert_ne!(id, LaunchId::NONE);
        }
    }

    #[test]
    fn names_are_read_from_symbols() {
        assert_eq!(kernel_name("hostcall_kernel_info_add__0123abcd"), Some("add"));
        assert_eq!(kernel_name("hostcall_kernel_info_a__b__0123abcd"), Some("a__b"));
        assert_eq!(kernel_name("hostcall_kernel_info_main__ffffffff"), Some("main"));
        for none in [
            "hostcall_kernel_add__0123abcd",
            "hostcall_kernel_info_add",
            "hostcall_kernel_info_add__0123abc",
            "hostcall_kernel_info_add__0123ABCD",
            "hostcall_kernel_info___0123abcd",
            "x_hostcall_kernel_info_add__0123abcd",
        ] {
            assert_eq!(kernel_name(none), None, "{none}");
        }
    }
}
