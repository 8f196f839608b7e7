//! Texts that a lane sends to the host as posts of [`PIECE_BYTES`] bytes: what a panic's message is made of, a printed line with
//! texts, and the text of a format or trace point before the call that registers it. Bytes of a call would take a place in the
//! slot's byte area, a wait for the host, and code and stack for both.

use crate::post::post_piece;
use crate::target;
use hostcall_abi::service::number;
use hostcall_abi::status::CallError;
use hostcall_format::unformatted::{LAST, MOST_PIECES, PIECE_BYTES, next_piece};

/// Bytes on their way to the host.
pub(crate) struct Pieces {
    service: u16,
    words: [u64; PIECE_BYTES / 8],
    /// How many bytes are there.
    bytes: u32,
    /// The number of the next post.
    piece: u32,
    /// How many posts may still be sent.
    left: u32,
}

impl Pieces {
    /// None so far, for the service of this number, which knows a lane's first post from the others. At most so many posts are
    /// sent.
    #[inline(always)]
    pub fn new(service: u16, most: u32) -> Self {
        Self { service, words: [0; PIECE_BYTES / 8], bytes: 0, piece: 0, left: most }
    }

    #[inline(never)]
    fn send(&mut self, last: u32) {
        if self.left > 0 {
            let extra = self.piece | self.bytes << 16 | last;
            let is_over = post_piece(self.service, extra, self.words).is_err();
            // Else the host would wait for more of it, up to the launch's end.
            self.left = if is_over { 0 } else { self.left - 1 };
            self.piece = next_piece(self.piece);
        }
        self.bytes = 0;
    }

    /// Adds a number of so many bytes, 8 at most, that has no others.
    #[inline(never)]
    pub fn number(&mut self, mut number: u64, mut bytes: u32) {
        loop {
            if self.bytes == PIECE_BYTES as u32 {
                self.send(0);
            }
            let used = self.bytes % 8;
            let taken = bytes.min(8 - used);
            // The remainder changes nothing, and spares GPU code the panic of a wrong index.
            let word = &mut self.words[self.bytes as usize / 8 % (PIECE_BYTES / 8)];
            *word = if used == 0 { number } else { *word | number << (8 * used) };
            self.bytes += taken;
            bytes -= taken;
            if bytes == 0 {
                return;
            }
            // Less than eight: the first word had less room.
            number >>= 8 * taken;
        }
    }

    /// Adds so many bytes, from `start` on. They are not a slice, whose length a caller would check.
    ///
    /// # Safety
    /// They can be read.
    #[inline(never)]
    pub unsafe fn bytes(&mut self, start: *const u8, len: usize) {
        let mut at = 0;
        while at < len {
            let (count, mut number) = ((len - at).min(8), 0);
            // SAFETY: the caller's promise, here and below. Eight loads at once take a GPU as long as one.
            unsafe {
                if count == 8 {
                    number = u64::from_le_bytes(start.add(at).cast::<[u8; 8]>().read());
                } else {
                    for i in 0..count {
                        number |= u64::from(start.add(at + i).read()) << (8 * i);
                    }
                }
            }
            self.number(number, count as u32);
            at += count;
        }
    }

    /// Sends what is left. Returns whether all was sent.
    #[inline(always)]
    pub fn finish(mut self) -> bool {
        // A last post that is the last of those that may be sent is taken for one too many.
        self.send(LAST);
        self.left > 0
    }
}

/// Sends texts, one behind the other, for the lane's next call, which names what this returns: the lane, as no other lane of the
/// launch is named.
pub(crate) fn send_texts(texts: &[&str]) -> Result<u64, CallError> {
    let here = target::here();
    let lane = u64::from(here.workgroup_index()) << 32 | u64::from(here.index_in_workgroup());
    let mut pieces = Pieces::new(number::TEXT, MOST_PIECES);
    pieces.number(lane, 8);
    for text in texts {
        // SAFETY: a text can be read.
        unsafe { pieces.bytes(text.as_ptr(), text.len()) };
    }
    if pieces.finish() { Ok(lane) } else { Err(CallError::Cancelled) }
}
