// Where a lane is in its grid.
static inline unsigned thread_in(int dimension) {
  return dimension == 0   ? __nvvm_read_ptx_sreg_tid_x()
         : dimension == 1 ? __nvvm_read_ptx_sreg_tid_y()
                          : __nvvm_read_ptx_sreg_tid_z();
}

static inline unsigned threads_in(int dimension) {
  return dimension == 0   ? __nvvm_read_ptx_sreg_ntid_x()
         : dimension == 1 ? __nvvm_read_ptx_sreg_ntid_y()
                          : __nvvm_read_ptx_sreg_ntid_z();
}

static inline unsigned block_in(int dimension) {
  return dimension == 0   ? __nvvm_read_ptx_sreg_ctaid_x()
         : dimension == 1 ? __nvvm_read_ptx_sreg_ctaid_y()
                          : __nvvm_read_ptx_sreg_ctaid_z();
}

static inline unsigned blocks_in(int dimension) {
  return dimension == 0   ? __nvvm_read_ptx_sreg_nctaid_x()
         : dimension == 1 ? __nvvm_read_ptx_sreg_nctaid_y()
                          : __nvvm_read_ptx_sreg_nctaid_z();
}

static inline unsigned lane_of_grid(void) {
  unsigned block = (block_in(2) * blocks_in(1) + block_in(1)) * blocks_in(0) + block_in(0);
  unsigned thread = (thread_in(2) * threads_in(1) + thread_in(1)) * threads_in(0) + thread_in(0);
  return block * threads_in(0) * threads_in(1) * threads_in(2) + thread;
}
