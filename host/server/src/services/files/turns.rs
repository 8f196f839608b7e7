//! Writes to one file, which the system lets one thread do at a time, take turns.

use super::OpenFiles;
use crate::services::SharedHandler;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_device::services::Files;
use hostcall_service::{Reply, Request, Service};
use std::sync::Arc;

/// Bits of the bytes' places in a part of a file, as large as the system keeps together at most (a folio). Two threads write to a
/// file, each to every other part: while the system has one write, the other gets what it writes next into its cache, and each
/// has there what the system knows of its part.
const PART_BITS: u32 = 21;

/// The service of files, whose writes to one file take turns.
pub(in crate::services) struct FilesInTurn<S> {
    service: S,
    files: Arc<OpenFiles>,
    /// Indices of the methods that write.
    writes: [usize; 2],
}

impl FilesInTurn<()> {
    /// The service of these files.
    pub fn serve(files: Arc<OpenFiles>) -> FilesInTurn<impl Service> {
        let service = Files::serve(SharedHandler(files.clone()));
        let writes = ["Files::write", "Files::write_at"].map(|name| {
            let at = service.methods().iter().position(|method| method.name() == name);
            at.expect("files are written")
        });
        FilesInTurn { service, files, writes }
    }
}

impl<S: Service> Service for FilesInTurn<S> {
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
}
