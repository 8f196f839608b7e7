// Where a lane is in its grid.
#ifdef __NVPTX__
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

// Lets a moment pass. Lanes that are elsewhere go on.
static inline void wait_a_moment(void) { __nvvm_nanosleep(1000); }
#else
static inline unsigned thread_in(int dimension) {
  return dimension == 0   ? __builtin_amdgcn_workitem_id_x()
         : dimension == 1 ? __builtin_amdgcn_workitem_id_y()
                          : __builtin_amdgcn_workitem_id_z();
}

static inline unsigned threads_in(int dimension) {
  return dimension == 0   ? __builtin_amdgcn_workgroup_size_x()
         : dimension == 1 ? __builtin_amdgcn_workgroup_size_y()
                          : __builtin_amdgcn_workgroup_size_z();
}

static inline unsigned block_in(int dimension) {
  return dimension == 0   ? __builtin_amdgcn_workgroup_id_x()
         : dimension == 1 ? __builtin_amdgcn_workgroup_id_y()
                          : __builtin_amdgcn_workgroup_id_z();
}

static inline unsigned blocks_in(int dimension) {
  unsigned lanes = dimension == 0   ? __builtin_amdgcn_grid_size_x()
                   : dimension == 1 ? __builtin_amdgcn_grid_size_y()
                                    : __builtin_amdgcn_grid_size_z();
  return lanes / threads_in(dimension);
}

static inline void wait_a_moment(void) { __builtin_amdgcn_s_sleep(1); }
#endif

static inline unsigned lane_of_grid(void) {
  unsigned block = (block_in(2) * blocks_in(1) + block_in(1)) * blocks_in(0) + block_in(0);
  unsigned thread = (thread_in(2) * threads_in(1) + thread_in(1)) * threads_in(0) + thread_in(0);
  return block * threads_in(0) * threads_in(1) * threads_in(2) + thread;
}
