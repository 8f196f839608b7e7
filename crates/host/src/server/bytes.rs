//! Byte messages: put together from pieces, and replies handed out in pieces.

use hostcall_abi::status::CallError;
use hostcall_abi::word::BytesHead;

/// What the host keeps of a lane's byte message between packets.
#[derive(Default)]
pub(crate) struct Pieces {
    /// The message so far.
    message: Vec<u8>,
    /// The reply, while pieces of it are left to fetch.
    reply: Vec<u8>,
}

impl Pieces {
    /// Room for a piece at the end of the message: checks the piece's head against what came before.
    pub fn extend(&mut self, head: &BytesHead, share: usize, limit: usize) -> Result<&mut [u8], CallError> {
        let total = usize::try_from(head.total_bytes).map_err(|_| CallError::TooLarge)?;
        let piece = usize::try_from(head.piece_bytes).map_err(|_| CallError::Malformed)?;
        if total > limit {
            self.message.clear();
            return Err(CallError::TooLarge);
        }
        if piece > share || self.message.len() + piece > total {
            self.message.clear();
            return Err(CallError::Malformed);
        }
        let start = self.message.len();
        self.message.resize(start + piece, 0);
        Ok(&mut self.message[start..])
    }

    /// The whole message, split into its argument words and bytes.
    pub fn finish(&mut self, head: &BytesHead) -> Result<(Vec<u64>, Vec<u8>), CallError> {
        let mut message = std::mem::take(&mut self.message);
        let words_end = usize::from(head.argument_words) * 8;
        if message.len() as u64 != head.total_bytes || words_end > message.len() {
            return Err(CallError::Malformed);
        }
        let words = message[..words_end]
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("a chunk has 8 bytes")))
            .collect();
        message.drain(..words_end);
        Ok((words, message))
    }

    /// Keeps a reply and gives its first piece.
    pub fn keep_reply(&mut self, reply: Vec<u8>, share: usize) -> &[u8] {
        self.reply = reply;
        &self.reply[..self.reply.len().min(share)]
    }

    /// The piece of the reply that starts at `offset`.
    pub fn fetch(&mut self, offset: u64, share: usize) -> Result<&[u8], CallError> {
        let offset = usize::try_from(offset).map_err(|_| CallError::Malformed)?;
        let rest = self.reply.get(offset..).ok_or(CallError::Malformed)?;
        Ok(&rest[..rest.len().min(share)])
    }
}
