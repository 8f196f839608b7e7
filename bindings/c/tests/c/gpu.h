/* The languages' header, and votes of a wave, for which each vendor has words of its own. */
#include "../../include/hostcall_gpu.h"

#if defined(__AMDGCN__)
#define __any(is_so) (__builtin_amdgcn_ballot_w64(is_so) != 0)
#else
#define __any_sync(lanes, is_so) __nvvm_vote_any_sync(lanes, is_so)
#endif
