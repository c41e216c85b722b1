/* Casts on the GPU: as many elements a vector as are 16 bytes of the wider datatype. Kernels by the elements' sizes and what is computed in;
 * which datatypes these are decides a branch for each vector. */
#include "cuda/map/convert.cuh"
#include "cuda/map/vectors.cuh"

/* In flight in a thread: 64 bytes, or 8 vectors. */
__host__ __device__ constexpr int cast_vectors(int from_bytes, int to_bytes)
{
    return from_bytes * 2 >= to_bytes ? 64 / from_bytes / (16 / (from_bytes > to_bytes ? from_bytes : to_bytes)) : 8;
}

int map_cast_rounds(size_t from_bytes, size_t to_bytes)
{
    return cast_vectors((int)from_bytes, (int)to_bytes);
}

/* Element i of a vector, as bits. */
template <int BYTES>
__device__ __forceinline__ uint64_t cast_bits(const map_raw &r, int i)
{
    if constexpr (BYTES == 8)
        return (uint64_t)r.word[2 * i + 1] << 32 | r.word[2 * i];
    else if constexpr (BYTES == 4)
        return r.word[i];
    else if constexpr (BYTES == 2)
        return r.word[i / 2] >> 16 * (i % 2) & 0xFFFF;
    else
        return r.word[i / 4] >> 8 * (i % 4) & 0xFF;
}

template <int BYTES, int N>
__device__ __forceinline__ map_raw cast_pack(const uint64_t (&bits)[N])
{
    map_raw r = {};
#pragma unroll
    for (int i = 0; i < N; i++) {
        if constexpr (BYTES == 8) {
            r.word[2 * i] = (uint32_t)bits[i];
            r.word[2 * i + 1] = (uint32_t)(bits[i] >> 32);
        } else {
            constexpr int IN_WORD = 4 / BYTES;
            const uint32_t one = BYTES == 4 ? (uint32_t)bits[i] : (uint32_t)bits[i] & ((1u << 8 * BYTES % 32) - 1);
            r.word[i / IN_WORD] |= one << 8 * BYTES % 32 * (i % IN_WORD);
        }
    }
    return r;
}

template <class M, int FROM, int TO>
__global__ void __launch_bounds__(MAP_THREADS) map_cast(ks_site site, const __grid_constant__ map_shape s)
{
    constexpr int N = 16 / (FROM > TO ? FROM : TO), V = cast_vectors(FROM, TO);
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    ks_await(site);
    const int64_t first = (int64_t)blockIdx.x * s.rounds * blockDim.x + threadIdx.x;
    const unsigned char *in = job.in + s.operand[0].offset;
    map_raw r[1][V];
#pragma unroll
    for (int u = 0; u < V; u++) {
        const int64_t vector = first + (int64_t)u * blockDim.x;
        if (u < s.rounds && vector < s.vectors) r[0][u] = map_read<N * FROM>(in + vector * (N * FROM));
    }
    ks_start(site);
#pragma unroll 1
    for (int u = 0; u < s.rounds; u++) {
        const int64_t vector = first + (int64_t)u * blockDim.x;
        if (vector >= s.vectors) break;
        uint64_t bits[N];
        M x[N];
#pragma unroll
        for (int i = 0; i < N; i++) bits[i] = cast_bits<FROM>(r[0][0], i);
        map_widen(bits, s.from, x);
        map_narrow(x, s.from, s.numbers.flip, s.to, bits);
        map_store<TO, N>(job.out, vector, s.count, cast_pack<TO>(bits));
        map_advance(r);
    }
    ks_leave(site);
}

template <class M, int FROM>
static cudaError_t start_to(const map_launch &l)
{
    switch (ks_dtype_size(l.work.out)) {
    case 1:
        return map_start(map_cast<M, FROM, 1>, l, l.shape);
    case 2:
        return map_start(map_cast<M, FROM, 2>, l, l.shape);
    case 4:
        return map_start(map_cast<M, FROM, 4>, l, l.shape);
    default:
        return map_start(map_cast<M, FROM, 8>, l, l.shape);
    }
}

template <class M>
static cudaError_t start_from(const map_launch &l)
{
    switch (ks_dtype_size(l.work.dtype)) {
    case 1:
        return start_to<M, 1>(l);
    case 2:
        return start_to<M, 2>(l);
    default:
        return start_to<M, 4>(l);
    }
}

cudaError_t map_launch_cast(const map_launch &l)
{
    if (l.work.math == KS_MAP_DOUBLE) return start_to<double, 8>(l);
    if (l.work.math == KS_MAP_FLOAT) return start_from<float>(l);
    return ks_dtype_size(l.work.dtype) == 8 ? start_to<uint64_t, 8>(l) : start_from<uint64_t>(l);
}
