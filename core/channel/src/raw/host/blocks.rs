//! Which pages of a block have come back.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hostcall_abi::raw::RawLayout;

/// Blocks of pages that lie side by side, which are given out together, so that they are filled at about the same time.
pub(super) struct Blocks {
    /// Pages of a block, a power of two.
    pub pages: u32,
    /// By page: whether it is back.
    is_back: Vec<bool>,
    /// By block: how many are back.
    pub back: Vec<u32>,
    /// How many are back in all.
    pub all_back: u32,
}

impl Blocks {
    pub fn new(layout: &RawLayout, pages: u32) -> Self {
        let (is_back, back) = match pages {
            1 => (Vec::new(), Vec::new()),
            _ => (
                alloc::vec![false; layout.pages() as usize],
                alloc::vec![0; (layout.pages() / pages) as usize],
            ),
        };
        Self { pages, is_back, back, all_back: 0 }
    }

    /// Notes that a page is back. Returns its block if all are.
    pub fn add(&mut self, page: u32) -> Option<u32> {
        let block = page / self.pages;
        let back = &mut self.back[block as usize];
        (self.is_back[page as usize], *back, self.all_back) = (true, *back + 1, self.all_back + 1);
        (*back == self.pages).then_some(block)
    }

    /// Takes the pages of a block that are back.
    pub fn take(&mut self, block: u32, to: &mut VecDeque<u32>) {
        self.all_back -= core::mem::take(&mut self.back[block as usize]);
        for page in block * self.pages..(block + 1) * self.pages {
            if core::mem::take(&mut self.is_back[page as usize]) {
                to.push_back(page);
            }
        }
    }
}
