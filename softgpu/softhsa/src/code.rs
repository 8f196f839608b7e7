//! Loaded code, and instructions decoded from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use crate::exec::rounding::Rounded;
use crate::exec::wave::{mode, scalar};
use crate::exec::{Env, Fault, Flow, Inst, Wave, coverage};
use crate::isa::decode::{Decoded, decode};
use crate::isa::table::Flag;

/// Everything that waves may execute.
#[derive(Debug, Default)]
pub struct CodeMap {
    /// By their addresses.
    segments: RwLock<BTreeMap<u64, Arc<Segment>>>,
}

impl CodeMap {
    /// Adds code that was loaded at an address.
    pub fn add(&self, address: u64, words: Vec<u32>) {
        let segment = Segment { address, words: words.into(), tables: Mutex::default() };
        self.segments.write().unwrap_or_else(PoisonError::into_inner).insert(address, Arc::new(segment));
    }

    /// Removes the code that was loaded at an address.
    pub fn remove(&self, address: u64) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    /// Returns the code that holds the address, for waves whose accumulation registers begin at that register.
    pub fn find(&self, pc: u64, accumulation: usize) -> Option<Arc<Code>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let (_, segment) = segments.range(..=pc).next_back()?;
        segment.contains(pc).then(|| segment.code(accumulation))
    }
}

#[derive(Debug)]
struct Segment {
    address: u64,
    words: Arc<[u32]>,
    /// Decoded code by the number of the first accumulation register, which is part of decoded operands.
    tables: Mutex<Vec<(usize, Arc<Code>)>>,
}

impl Segment {
    fn contains(&self, pc: u64) -> bool {
        pc.checked_sub(self.address).is_some_and(|offset| offset / 4 < self.words.len() as u64)
    }

    fn code(&self, accumulation: usize) -> Arc<Code> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, code)) = tables.iter().find(|(first, _)| *first == accumulation) {
            return Arc::clone(code);
        }
        let code = Arc::new(Code::new(self.address, Arc::clone(&self.words), accumulation));
        tables.push((accumulation, Arc::clone(&code)));
        code
    }
}

/// A place for a decoded instruction, or for why there is none.
type Step = OnceLock<Box<Result<Inst, Fault>>>;

/// The places of so many words that follow each other.
const BLOCK: usize = 256;

/// Code with the instructions that were decoded so far.
#[derive(Debug)]
pub struct Code {
    address: u64,
    words: Arc<[u32]>,
    accumulation: usize,
    /// Made for code that waves reach: kernels differ in the number of their first accumulation register, and
    /// each such number has a table of the whole segment.
    blocks: Box<[OnceLock<Box<[Step]>>]>,
}

impl Code {
    fn new(address: u64, words: Arc<[u32]>, accumulation: usize) -> Code {
        let blocks = words.chunks(BLOCK).map(|_| OnceLock::new()).collect();
        Code { address, words, accumulation, blocks }
    }

    /// Returns the places of the block that holds the address, or `None` if it is outside of this code.
    fn block(&self, pc: u64) -> Option<Block<'_>> {
        let index = usize::try_from(pc.checked_sub(self.address)? / 4).ok()?;
        let words = self.words.chunks(BLOCK).nth(index / BLOCK).filter(|_| index < self.words.len())?;
        let made = || words.iter().map(|_| OnceLock::new()).collect();
        let steps = self.blocks.get(index / BLOCK)?.get_or_init(made);
        Some(Block { address: self.address + (index / BLOCK * BLOCK * 4) as u64, steps })
    }

    /// Returns the instruction at the address, whose place it is.
    #[inline(always)]
    fn decoded<'a>(&self, step: &'a Step, pc: u64) -> &'a Result<Inst, Fault> {
        step.get_or_init(|| Box::new(self.prepare(pc)))
    }

    #[cold]
    fn prepare(&self, pc: u64) -> Result<Inst, Fault> {
        let words = &self.words[(pc - self.address) as usize / 4..];
        let decoded =
            decode(words).map_err(|refused| Fault::Illegal { words: [refused.first, refused.second] })?;
        coverage::note(decoded.row);
        Inst::new(&decoded, self.accumulation).ok_or_else(|| Fault::Missing { text: text(&decoded, words) })
    }

    /// Returns the text and the words of the instruction at the address, if there is one.
    pub fn text(&self, pc: u64) -> Option<String> {
        let words = self.words.get(usize::try_from(pc.checked_sub(self.address)? / 4).ok()?..)?;
        Some(text(&decode(words).ok()?, words))
    }
}

/// The places of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Block<'a> {
    /// Where the first one's instruction is.
    address: u64,
    steps: &'a [Step],
}

impl<'a> Block<'a> {
    /// Returns the place of the instruction at the address, if it is in this block.
    #[inline(always)]
    fn step(&self, pc: u64) -> Option<&'a Step> {
        self.steps.get((pc.wrapping_sub(self.address) / 4) as usize)
    }
}

/// Returns the text and the words of the instruction that the words begin with.
fn text(decoded: &Decoded, words: &[u32]) -> String {
    let raw: Vec<String> = words[..decoded.size as usize / 4].iter().map(|w| format!("{w:#010x}")).collect();
    format!("`{decoded}` ({})", raw.join(" "))
}

/// Runs a wave for at most `steps` instructions, and returns why it paused: [`Flow::Next`] if all of them ran. After a
/// fault the program counter names the instruction that failed.
pub fn run(wave: &mut Wave, env: &mut Env<'_>, code: &mut Arc<Code>, map: &CodeMap, steps: u32) -> Flow {
    let mut left = steps;
    loop {
        let flow = run_in(wave, env, code, &mut left);
        let Some(flow) = flow else {
            match map.find(wave.pc, wave.accumulation) {
                Some(other) => *code = other,
                None => {
                    wave.fault = Some(Fault::Fetch);
                    return Flow::Fault;
                }
            }
            continue;
        };
        wave.executed += u64::from(steps - left);
        return flow;
    }
}

/// Runs a wave in one piece of code. Returns `None` if the program counter has left it.
fn run_in(wave: &mut Wave, env: &mut Env<'_>, code: &Code, left: &mut u32) -> Option<Flow> {
    let mut block = Block::default();
    while *left > 0 {
        let pc = wave.pc;
        let step = match block.step(pc) {
            Some(step) => step,
            None => {
                block = code.block(pc)?;
                block.step(pc)?
            }
        };
        let inst = match code.decoded(step, pc) {
            Ok(inst) => inst,
            Err(fault) => {
                wave.fault = Some(fault.clone());
                return Some(Flow::Fault);
            }
        };
        *left -= 1;
        wave.pc = pc + u64::from(inst.size);
        let unusual = wave.mode & (mode::ROUND_32 | mode::ROUND_16_64 | mode::INDEX) != 0;
        let flow = if unusual && inst.row.has(Flag::Valu) {
            run_unusual(wave, inst, env, code, pc)
        } else {
            (inst.run)(wave, inst, env)
        };
        match flow {
            Flow::Next => {}
            Flow::Fault => {
                wave.pc = pc;
                return Some(Flow::Fault);
            }
            other => return Some(other),
        }
    }
    Some(Flow::Next)
}

/// Runs a vector instruction with registers that M0 indexes, or with another rounding than to the nearest even number.
#[cold]
fn run_unusual(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, code: &Code, pc: u64) -> Flow {
    let indexed;
    let mut inst = inst;
    let operands = wave.indexed_operands();
    if operands != 0 {
        let index = wave.s[usize::from(scalar::M0)] as u16 & 255;
        indexed = inst.indexed(operands, index);
        inst = &indexed;
    }
    match inst.rounded {
        _ if wave.mode & (mode::ROUND_32 | mode::ROUND_16_64) == 0 => (inst.run)(wave, inst, env),
        Rounded::Same => (inst.run)(wave, inst, env),
        Rounded::Otherwise(run) if inst.modifiers.omod == 0 => run(wave, inst, env),
        _ => {
            let text = code.text(pc).unwrap_or_default();
            let text = format!("{text} with the rounding of MODE {:#x}", wave.mode);
            wave.fault = Some(Fault::Missing { text });
            Flow::Fault
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A large code object has kernels with many different numbers of registers, of which each needs its
    /// own table.
    #[test]
    fn places_are_made_where_waves_come_to() {
        const END: u32 = 0xbf81_0000;
        let map = CodeMap::default();
        let words = 3 * BLOCK + 7;
        map.add(0x1000, vec![END; words]);
        let code = map.find(0x1000, 8).expect("it was added");
        let made = || code.blocks.iter().filter(|block| block.get().is_some()).count();
        assert_eq!((code.blocks.len(), made()), (4, 0));
        let at = |word: usize| {
            let pc = 0x1000 + 4 * word as u64;
            let block = code.block(pc)?;
            Some(code.decoded(block.step(pc)?, pc).is_ok())
        };
        assert_eq!((at(BLOCK), at(words - 1), at(words), made()), (Some(true), Some(true), None, 2));
        assert!(code.block(0xffc).is_none() && code.block(u64::MAX).is_none());
        let other = map.find(0x1000, 12).expect("it was added");
        assert!(Arc::ptr_eq(&code.words, &other.words) && !Arc::ptr_eq(&code, &other));
    }
}
