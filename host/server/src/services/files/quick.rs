//! Reads that wait for nothing, because the system has what they ask for in its memory.

use super::OpenFiles;
use crate::services::SharedHandler;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_device::services::Files;
use hostcall_service::{Output, Reply, Request, Service};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::sync::Arc;

/// Most bytes of a read that is answered at once: 10 µs or so, for which the thread that finds calls finds none.
const MOST_AT_ONCE: usize = 256 << 10;

/// Bits of the bytes' places in a part of a file, as large as the system keeps together at most (a folio). Two threads write to a
/// file, each to every other part: while the system has one write, the other gets what it writes next into its cache, and each
/// has there what the system knows of its part.
const PART_BITS: u32 = 21;

/// The service of files, which reads at once what is in memory.
pub(in crate::services) struct QuickFiles<S> {
    service: S,
    files: Arc<OpenFiles>,
    /// Indices of the method that reads at a place, and of those that write.
    read_at: usize,
    writes: [usize; 2],
}

impl QuickFiles<()> {
    /// The service of these files.
    pub fn serve(files: Arc<OpenFiles>) -> QuickFiles<impl Service> {
        let service = Files::serve(SharedHandler(files.clone()));
        let [read_at, write, write_at] = ["Files::read_at", "Files::write", "Files::write_at"].map(|name| {
            let at = service.methods().iter().position(|method| method.name() == name);
            at.expect("files are read and written")
        });
        QuickFiles { service, files, read_at, writes: [write, write_at] }
    }
}

impl<S: Service> Service for QuickFiles<S> {
    fn methods(&self) -> &[Method] {
        self.service.methods()
    }

    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        self.service.call(method, request, reply)
    }

    fn turn(&self, method: usize, request: Request<'_>) -> Option<u64> {
        let (true, [file, ..]) = (self.writes.contains(&method), request.words) else { return None };
        let turn = self.files.table.get(*file).ok()?.turn?;
        let writer = match request.words {
            [_, offset, ..] if method == self.writes[1] => offset >> PART_BITS & 1,
            _ => 0,
        };
        Some(turn << 1 | writer)
    }

    fn may_call_at_once(&self, method: usize) -> bool {
        method == self.read_at
    }

    fn call_at_once(
        &self,
        method: usize,
        request: Request<'_>,
        reply: &mut dyn Reply,
    ) -> Option<Result<(), CallError>> {
        if method != self.read_at || request.reply_capacity > MOST_AT_ONCE {
            return None;
        }
        let (file, offset) = request.arguments::<(u64, u64)>().ok()?;
        let file = self.files.table.get(file).ok()?;
        let mut out = Output::new(reply, request.reply_capacity);
        let filled = out.fill_at_once(request.reply_capacity, |bytes| read_at_once(&file, bytes, offset));
        filled.ok()?.map(|_| Ok(()))
    }
}

/// Reads from `offset` on what fits, if the system has that in its memory. Returns how many bytes were read: fewer than fit
/// only at the end of the file.
pub(super) fn read_at_once(file: &File, bytes: &mut [u8], offset: u64) -> Option<usize> {
    // The system takes the largest number for the file's position.
    i64::try_from(offset).ok()?;
    let wanted = bytes.len();
    let read = preadv2(file, &mut [IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT).ok()?;
    let is_end = || file.metadata().is_ok_and(|metadata| metadata.len() <= offset + read as u64);
    (read == wanted || is_end()).then_some(read)
}
