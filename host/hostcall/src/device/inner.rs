//! What an open device is: everything that its streams, and whatever else works with it, share.
#![allow(unsafe_code, reason = "states of slots are written by address")]

use super::closure_table::Closures;
use super::core::{Core, Kept};
use super::error::{CrowdedGrid, Error};
use super::grid::product;
use super::hostcalls::Hostcalls;
use super::images::Images;
use super::llvm_calls::LlvmCalls;
use super::look::Look;
use super::owners::Owners;
use super::point_filter::PointFilter;
use super::reaper::ReaperThread;
use super::wait_table::WaitTable;
use super::words::{StreamWordTable, StreamWords};
use hostcall_abi::launch::{ChannelParams, LaunchId};
use hostcall_channel::SharedMemory;
use hostcall_channel::device::Channel;
use hostcall_locks::Mutex;
use hostcall_seam::{DeviceAddress, DeviceKind, Hooks, Memory, Properties, Running};
use hostcall_server::services::Builtins;
use hostcall_server::{CancelReason, LaunchRecord, RegisterError, Server, Waiting};
use hostcall_trace::{Source, Tracer};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A device with its server. Clones are the same device; it closes when the last is dropped.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

/// A device that this handle does not keep open, for a service that uses its own device. See [`Device::downgrade`].
#[derive(Clone, Default)]
pub struct WeakDevice(Weak<Inner>);

impl WeakDevice {
    /// Returns the device, until its last [`Device`] is dropped.
    pub fn upgrade(&self) -> Option<Device> {
        Some(Device { inner: self.0.upgrade()? })
    }
}

impl Device {
    /// Returns a handle that does not keep the device open. A service that kept a [`Device`] of the device that it serves would
    /// keep that one open, and so itself, for ever: also after [`Device::close`].
    ///
    /// ```
    /// use hostcall::{CallError, Device, WeakDevice, service};
    /// use std::sync::{Arc, OnceLock};
    ///
    /// #[service]
    /// trait Buffers {
    ///     fn clear();
    /// }
    ///
    /// #[derive(Clone, Default)]
    /// struct OfDevice(Arc<OnceLock<WeakDevice>>);
    ///
    /// impl BuffersHandler for OfDevice {
    ///     fn clear(&self) -> Result<(), CallError> {
    ///         let device = self.0.get().and_then(WeakDevice::upgrade).ok_or(CallError::Cancelled)?;
    ///         device.stream().map(drop).map_err(|_| CallError::Failed(1))
    ///     }
    /// }
    ///
    /// let own = OfDevice::default();
    /// let device = Device::builder("cpu").service(Buffers::serve(own.clone())).open()?;
    /// let _ = own.0.set(device.downgrade());
    /// # Ok::<(), hostcall::Error>(())
    /// ```
    pub fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.inner))
    }
}

/// The trace points of a device's kernels, which one recording at a time may have.
pub(crate) trait DevicePoints: Send + Sync {
    /// Returns the address that tells kernels of others where to write, for a context, and what to keep as long as these may.
    fn of_others(&self) -> Result<(DeviceAddress, Kept), Error>;
    /// Begins a recording to this tracer, if there is none. Returns its number. `records_launches` says that the server has the
    /// source too.
    fn begin(
        &self,
        server: &Arc<Server>,
        tracer: &Tracer,
        source: Source,
        records_launches: bool,
        filter: PointFilter,
    ) -> Result<u64, Error>;
    /// Says whether there is one.
    fn is_recorded(&self) -> bool;
    /// Switches the points of a recording on or off, if it is not over.
    fn switch(&self, recording: u64, is_on: bool) -> Result<(), Error>;
    /// Ends a recording, if it is not over: all that was written is in the tracer's queue then.
    fn end(&self, recording: u64);
    /// Takes back what waves that were ended by force had of the pages, by their home slots, which nobody has.
    fn restore(&self, homes: &[u32]);
}

pub(crate) struct Inner {
    pub core: Arc<Core>,
    pub images: Images,
    pub server: Arc<Server>,
    pub builtins: Builtins,
    pub traced: Option<Traced>,
    /// Trace points, which somebody may record.
    pub points: Arc<dyn DevicePoints>,
    /// What kernels read of the channel, as it is in `channel`.
    pub channel_params: ChannelParams,
    /// [`LaunchParams::channel`](hostcall_abi::launch::LaunchParams::channel).
    pub channel: Arc<dyn Memory>,
    /// The device's own memory of extra slots and large areas: states and bitmaps.
    pub extras: [Arc<dyn Memory>; 3],
    /// What host and device share.
    pub region: Arc<SharedMemory>,
    /// What waves say that they wait for.
    pub waits: Arc<WaitTable>,
    pub stream_words: Arc<StreamWordTable>,
    /// Who gave the device its launches, where somebody is told how they end.
    pub owners: Arc<Owners>,
    pub hooks: Arc<dyn Hooks>,
    /// What answers kernels that speak ROCm's protocol.
    pub hostcalls: Arc<Hostcalls>,
    /// What became of calls by LLVM's protocol.
    pub llvm_calls: Arc<LlvmCalls>,
    /// As others look at the device.
    pub look: Arc<Look>,
    pub closures: Mutex<Option<Closures>>,
    /// The launches that can be ended from outside.
    pub endable: Mutex<HashMap<LaunchId, EndableLaunch>>,
    pub _reaper: ReaperThread,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What is left of it, such as its buffers, is a closed device's.
        self.core.closed.store(true, Ordering::SeqCst);
        if !self.core.is_forked() {
            self.look.end();
            self.core.holders.close();
        }
    }
}

/// A tracer, and the name that its trace has for the device.
pub(crate) struct Traced {
    pub tracer: Tracer,
    pub name: String,
}

impl Traced {
    /// Returns what records calls of this protocol.
    pub fn source(&self, protocol: &'static str) -> Source {
        self.tracer.source(&self.name, protocol)
    }
}

/// A launch that is with a device which can end it.
pub(crate) struct EndableLaunch {
    running: Arc<dyn Running>,
    /// Those of its stream.
    words: Arc<StreamWords>,
    sequence: u64,
}

/// What the device tells.
pub(crate) struct DeviceHooks {
    pub server: Arc<Server>,
    pub device: Weak<Inner>,
}

impl Hooks for DeviceHooks {
    fn notify(&self) {
        self.server.wake();
    }

    fn failed(&self, token: u64) {
        let launch = LaunchId::from_bits(token as u32);
        match self.device.upgrade() {
            Some(device) => device.cancel(launch, CancelReason::Failed),
            None => self.server.cancel(launch, CancelReason::Failed),
        }
    }
}

/// A wait that is shorter than this looks again and again, and its error says no more than it must.
const LEAST_TO_SAY_MORE: Duration = Duration::from_millis(100);

impl Inner {
    /// Notes that a launch is with a device that can end it. Returns why it was cancelled, if that was before it was known, so
    /// that whoever cancelled it did not find it.
    pub fn note_endable(
        &self,
        launch: LaunchId,
        running: &Arc<dyn Running>,
        words: &Arc<StreamWords>,
        sequence: u64,
    ) -> Option<CancelReason> {
        let known = EndableLaunch { running: running.clone(), words: words.clone(), sequence };
        self.endable.lock().insert(launch, known);
        self.server.launches().cancelled(launch)
    }

    /// Forgets a launch that has ended.
    pub fn forget_endable(&self, launch: LaunchId) {
        let known = self.endable.lock().remove(&launch);
        drop(known);
    }

    pub fn properties(&self) -> &Properties {
        self.core.backend.properties()
    }

    /// Makes slots usable again whose waves were ended in the middle: on a thread of host functions, since the server's
    /// consumers are waited for, whose handlers may want a lock of the caller's.
    pub fn restore_lost_slots(self: &Arc<Self>, ended: &Arc<dyn Running>) {
        let homes = ended.take_lost_slots();
        if !homes.is_empty() && self.properties().kind == DeviceKind::Software {
            let (device, ended) = (self.clone(), ended.clone());
            self.core.reaper.run(Box::new(move || device.restore_slots(&*ended, homes)));
        }
    }

    fn restore_slots(&self, ended: &dyn Running, homes: Vec<u32>) {
        // SAFETY: the parameters are those of this device's channel, whose memory is this process's and lives as long as the
        // device. SLOT-OWNER: the waves that claimed the slots were ended, and no other claims them before they are restored
        // (SLOT-BY-NUMBER, of the seam's `Backend`).
        unsafe {
            let channel = Channel::from_params(&self.channel_params);
            let mut slots = homes.clone();
            slots.extend(channel.extras_held_by(&homes));
            self.server.reset(&slots);
            channel.forget(&slots);
        }
        self.points.restore(&homes);
        ended.restore_slots(&homes);
    }

    /// Ends a launch: its calls get no answers but that, and a device that can ends its lanes. Called by the reaper, by threads
    /// of a device, and by who cancels; consumers leave it to the reaper. It takes no lock of a stream's queue, under which a
    /// driver may be waited for. What users ask for is `StreamQueue::cancel`.
    pub fn cancel(&self, launch: LaunchId, why: CancelReason) {
        if launch == LaunchId::NONE {
            return;
        }
        self.server.cancel(launch, why);
        let known = self
            .endable
            .lock()
            .get(&launch)
            .map(|known| (known.running.clone(), known.words.clone(), known.sequence));
        let Some((running, words, sequence)) = known else { return };
        words.stop_from(sequence);
        running.cancel();
    }

    /// Returns the table of the device's closures, whose service is registered when the first is made.
    pub fn closures(&self) -> Result<Closures, RegisterError> {
        let mut closures = self.closures.lock();
        if closures.is_none() {
            *closures = Some(Closures::register(&self.server)?);
        }
        Ok(closures.clone().expect("set above"))
    }

    /// Returns what waves wait for. Nothing here asks the driver.
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut calls = self.server.waiting();
        calls.extend(self.hostcalls.waiting());
        calls.extend(self.waits.waiting(&self.server, &self.core.holders));
        calls
    }

    /// Returns the error of a wait for what has not ended within a limit: with what has waited longest, which the rest may wait
    /// for. `running` finds the launch that keeps what is waited for from ending, if it is known.
    pub fn timed_out(
        &self,
        what: &'static str,
        limit: Duration,
        running: impl FnOnce() -> Option<LaunchRecord>,
    ) -> Error {
        let longest = self.waiting().into_iter().max_by_key(|wait| wait.waited);
        let is_told = longest.is_none() && limit >= LEAST_TO_SAY_MORE;
        let crowded = is_told.then(running).flatten().and_then(|launch| self.crowded(launch)).map(Box::new);
        Error::TimedOut { what, limit, longest: longest.map(Box::new), crowded }
    }

    /// Returns a launch that has more workgroups than the device can run at once, if it has.
    fn crowded(&self, launch: LaunchRecord) -> Option<CrowdedGrid> {
        let properties = self.core.backend.properties();
        let waves = launch.lanes.div_ceil(u64::from(properties.wave_size)).max(1);
        let (workgroups, at_once) =
            (product(launch.workgroups), u64::from(properties.resident_waves) / waves);
        (workgroups > at_once).then_some(CrowdedGrid { kernel: launch.kernel, workgroups, at_once })
    }
}
