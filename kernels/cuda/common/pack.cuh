/* Words that a thread collects to write 16 bytes at once. */
#ifndef KS_PACK_CUH
#define KS_PACK_CUH

#include <stdint.h>

#include <cuda_runtime.h>

/* 16 bytes of words W. */
template <class W>
struct ks_word_pack {
    static constexpr int LENGTH = 16 / (int)sizeof(W);
    union {
        uint4 raw;
        W word[LENGTH];
    };
    __device__ __forceinline__ ks_word_pack() : raw(make_uint4(0, 0, 0, 0))
    {
    }
    /* As pack `at` of memory that holds `words` of them in all. */
    __device__ __forceinline__ void store(void *out, int64_t at, int64_t words) const
    {
        if ((at + 1) * LENGTH <= words) {
            ((uint4 *)out)[at] = raw;
            return;
        }
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            if (at * LENGTH + i < words) ((W *)out)[at * LENGTH + i] = word[i];
    }
};

#endif
