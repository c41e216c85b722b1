/* Operands and output of one datatype, or an output of BOOL, by vectors of 16 bytes of the operands.
 *
 * A thread asks for all of its vectors, then computes one after the other: the registers of the others move up, so that the code stands
 * there once however many are in flight. What an operand needs beside plain loads is done behind those. */
#ifndef KS_MAP_VECTORS_CUH
#define KS_MAP_VECTORS_CUH

#include "cuda/map/functions.cuh"

/* --- elements of a vector ------------------------------------------------------------------------------------------------- */

/* Four words of a register file, of which BYTES are in use. */
struct map_raw {
    uint32_t word[4];
};

template <int BYTES>
__device__ __forceinline__ map_raw map_read(const unsigned char *at)
{
    map_raw r;
    if constexpr (BYTES == 16) {
        const uint4 all = *(const uint4 *)at;
        r.word[0] = all.x, r.word[1] = all.y, r.word[2] = all.z, r.word[3] = all.w;
    } else if constexpr (BYTES == 8) {
        const uint2 all = *(const uint2 *)at;
        r.word[0] = all.x, r.word[1] = all.y;
    } else if constexpr (BYTES == 4) {
        r.word[0] = *(const uint32_t *)at;
    } else if constexpr (BYTES == 2) {
        r.word[0] = *(const uint16_t *)at;
    } else {
        r.word[0] = *at;
    }
    return r;
}

template <int BYTES>
__device__ __forceinline__ void map_write(unsigned char *at, const map_raw &r)
{
    if constexpr (BYTES == 16)
        *(uint4 *)at = make_uint4(r.word[0], r.word[1], r.word[2], r.word[3]);
    else if constexpr (BYTES == 8)
        *(uint2 *)at = uint2{r.word[0], r.word[1]};
    else if constexpr (BYTES == 4)
        *(uint32_t *)at = r.word[0];
    else
        *(uint16_t *)at = (uint16_t)r.word[0];
}

/* The first `count` elements of BYTES bytes each. */
template <int BYTES, int N>
__device__ __forceinline__ void map_write_some(unsigned char *at, const map_raw &r, int count)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i >= count) continue;
        if constexpr (BYTES == 1)
            at[i] = (unsigned char)(r.word[i / 4] >> 8 * (i % 4));
        else if constexpr (BYTES == 2)
            ((uint16_t *)at)[i] = (uint16_t)(r.word[i / 2] >> 16 * (i % 2));
        else if constexpr (BYTES == 4)
            ((uint32_t *)at)[i] = r.word[i];
        else
            ((uint2 *)at)[i] = uint2{r.word[2 * i], r.word[2 * i + 1]};
    }
}

/* A vector of N elements of BYTES bytes, of which so many are the output's. */
template <int BYTES, int N>
__device__ __forceinline__ void map_store(unsigned char *out, int64_t vector, int64_t count, const map_raw &r)
{
    unsigned char *at = out + vector * (N * BYTES);
    if ((vector + 1) * N <= count)
        map_write<N * BYTES>(at, r);
    else
        map_write_some<BYTES, N>(at, r, (int)(count - vector * N));
}

/* Bytes that are not 0 become 1. */
__device__ __forceinline__ uint32_t map_truth_bytes(uint32_t word)
{
    word |= word >> 4;
    word |= word >> 2;
    word |= word >> 1;
    return word & 0x01010101u;
}

/* One element in each of the vector's places. */
template <int BYTES>
__device__ __forceinline__ void map_spread(map_raw *r)
{
    uint32_t word = r->word[0];
    if constexpr (BYTES == 1) word = (word & 0xFF) * 0x01010101u;
    if constexpr (BYTES == 2) word = (word & 0xFFFF) * 0x00010001u;
    r->word[0] = r->word[2] = word;
    r->word[1] = r->word[3] = BYTES == 8 ? r->word[1] : word;
}

/* A datatype of T, computed in M. */
template <class T_>
struct map_real {
    typedef T_ T;
    typedef typename ks_element<T_>::math M;
    static constexpr int N = 16 / (int)sizeof(T_);
    static constexpr bool WHOLE = false;

    static __device__ __forceinline__ void unpack(const map_raw &r, M (&x)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (sizeof(T) == 2)
                x[i] = ks_math_of<T>(r.word[i / 2], i % 2);
            else if constexpr (sizeof(T) == 4)
                x[i] = __uint_as_float(r.word[i]);
            else
                x[i] = __longlong_as_double((long long)((uint64_t)r.word[2 * i + 1] << 32 | r.word[2 * i]));
        }
    }

    static __device__ __forceinline__ map_raw pack(const M (&x)[N])
    {
        map_raw r;
#pragma unroll
        for (int w = 0; w < 4; w++) {
            if constexpr (sizeof(T) == 2)
                r.word[w] = ks_round_two<T>(x[2 * w], x[2 * w + 1]);
            else if constexpr (sizeof(T) == 4)
                r.word[w] = __float_as_uint(x[w]);
            else
                r.word[w] = (uint32_t)((uint64_t)__double_as_longlong(x[w / 2]) >> 32 * (w % 2));
        }
        return r;
    }
};

template <class T_, class M_>
struct map_whole {
    typedef T_ T;
    typedef M_ M;
    static constexpr int N = 16 / (int)sizeof(T_), IN_WORD = sizeof(T_) < 4 ? 4 / (int)sizeof(T_) : 1;
    static constexpr bool WHOLE = true;

    static __device__ __forceinline__ void unpack(const map_raw &r, M (&x)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (sizeof(T) == 8)
                x[i] = (uint64_t)r.word[2 * i + 1] << 32 | r.word[2 * i];
            else
                x[i] = (T)(r.word[i / IN_WORD] >> 8 * (int)sizeof(T) * (i % IN_WORD));
        }
    }

    static __device__ __forceinline__ map_raw pack(const M (&x)[N])
    {
        map_raw r;
#pragma unroll
        for (int w = 0; w < 4; w++) {
            if constexpr (sizeof(T) == 8) {
                r.word[w] = (uint32_t)(x[w / 2] >> 32 * (w % 2));
            } else {
                r.word[w] = 0;
#pragma unroll
                for (int i = 0; i < IN_WORD; i++)
                    r.word[w] |= (uint32_t)(T)x[w * IN_WORD + i] << 8 * (int)sizeof(T) * i;
            }
        }
        return r;
    }
};

/* N truths as bytes. */
template <int N>
__device__ __forceinline__ map_raw map_pack_truths(const uint32_t (&truth)[N])
{
    map_raw r = {};
#pragma unroll
    for (int i = 0; i < N; i++) r.word[i / 4] |= truth[i] << 8 * (i % 4);
    return r;
}

/* --- operands ------------------------------------------------------------------------------------------------------------- */

/* N elements of BYTES bytes from the output's element `element` on, each from where it lies: one after the other, shifted in from above. */
template <int BYTES, int N, class Shape>
__device__ __forceinline__ map_raw map_gather(const Shape &s, const map_operand &operand, const unsigned char *in,
                                              int64_t element)
{
    constexpr int WORDS = N * BYTES < 4 ? 1 : N * BYTES / 4, TOP = (N * BYTES < 4 ? N * BYTES : 4) * 8 - 8 * BYTES;
    const int64_t extent = s.axis[s.axes - 1].extent, step = operand.stride[s.axes - 1];
    map_place place = map_place_of(s, element);
    int64_t row = map_row_offset(s, operand, place.row);
    map_raw r = {};
#pragma unroll 1
    for (int i = 0; i < N; i++) {
        map_raw one = {};
        if (element + i < s.count) one = map_read<BYTES>(in + (row + place.column * step) * BYTES);
        if constexpr (BYTES == 8) {
            r.word[0] = r.word[2], r.word[1] = r.word[3];
            r.word[2] = one.word[0], r.word[3] = one.word[1];
        } else if constexpr (BYTES == 4) {
#pragma unroll
            for (int w = 0; w + 1 < WORDS; w++) r.word[w] = r.word[w + 1];
            r.word[WORDS - 1] = one.word[0];
        } else {
#pragma unroll
            for (int w = 0; w + 1 < WORDS; w++) r.word[w] = __funnelshift_r(r.word[w], r.word[w + 1], 8 * BYTES);
            r.word[WORDS - 1] = r.word[WORDS - 1] >> 8 * BYTES | one.word[0] << TOP;
        }
        if (++place.column == extent) {
            place.column = 0;
            row = map_row_offset(s, operand, ++place.row);
        }
    }
    return r;
}

/* BATCH more elements of SIZE bytes at the end of a vector of N; those in front move down. */
template <int SIZE, int BATCH, int N>
__device__ __forceinline__ void map_append(const map_raw (&one)[BATCH], map_raw *r)
{
    constexpr int WORDS = N * SIZE < 4 ? 1 : N * SIZE / 4, MORE = BATCH * SIZE < 4 ? 1 : BATCH * SIZE / 4;
#pragma unroll
    for (int w = 0; w + MORE < WORDS; w++) r->word[w] = r->word[w + MORE];
#pragma unroll
    for (int w = 0; w < MORE; w++) {
        uint32_t word = 0;
        if constexpr (SIZE == 8) {
            word = one[w / 2].word[w % 2];
        } else {
#pragma unroll
            for (int i = 0; i < (BATCH * SIZE < 4 ? BATCH : 4 / SIZE); i++)
                word |= one[w * (4 / SIZE) + i].word[0] << 8 * SIZE % 32 * i;
        }
        r->word[WORDS - MORE + w] = word;
    }
}

/* All gathered operands of a vector, of narrow indices: divisions are done once for all of them, and all loads of a batch are under way before
 * the first of them is looked at. The first operand's elements have FIRST bytes. */
template <int FIRST, int BYTES, int N, int K, int V>
__device__ __forceinline__ void map_gather_narrow(const map_shape &s, const unsigned char *side, uint32_t element,
                                                  int u, map_raw (&r)[K][V])
{
    constexpr int BATCH = N < 4 ? N : 4;
#pragma unroll 1
    for (int from = 0; from < N; from += BATCH) {
        uint32_t rest[BATCH], offset[K][BATCH] = {};
        map_raw one[K][BATCH] = {};
#pragma unroll
        for (int i = 0; i < BATCH; i++) rest[i] = element + from + i;
#pragma unroll 1
        for (int d = s.axes - 1; d >= 0; d--) {
            const map_axis &axis = s.axis[d];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const uint32_t left = map_quotient(rest[i], axis), at = rest[i] - left * (uint32_t)axis.extent;
                rest[i] = left;
#pragma unroll
                for (int k = 0; k < K; k++) offset[k][i] += at * (uint32_t)s.operand[k].stride[d];
            }
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (s.operand[k].kind != MAP_GATHER) continue;
            const unsigned char *in = side + s.operand[k].offset;
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                if (element + from + i >= s.count) continue;
                one[k][i] = k == 0 ? map_read<FIRST>(in + (int64_t)offset[k][i] * FIRST)
                                   : map_read<BYTES>(in + (int64_t)offset[k][i] * BYTES);
            }
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (s.operand[k].kind != MAP_GATHER) continue;
            if (k == 0)
                map_append<FIRST, BATCH, N>(one[k], &r[k][u]);
            else
                map_append<BYTES, BATCH, N>(one[k], &r[k][u]);
        }
    }
}

/* What is a load and nothing else. */
template <int BYTES, int N>
__device__ __forceinline__ void map_load_plain(const map_shape &s, int k, const unsigned char *side, int64_t vector,
                                               map_raw *r)
{
    const map_operand &operand = s.operand[k];
    const unsigned char *in = side + operand.offset;
    if (operand.kind == MAP_FLAT) {
        *r = map_read<N * BYTES>(in + vector * (N * BYTES));
    } else if (operand.kind == MAP_ROW) {
        *r = map_read<N * BYTES>(in + map_offset(s, operand, vector * N) * BYTES);
    } else if (operand.kind == MAP_SPLAT) {
        *r = map_read<BYTES>(in + map_offset(s, operand, vector * N) * BYTES);
    }
}

/* K operands of BYTES bytes an element, the first one of FIRST bytes. */
template <int FIRST, int BYTES, int N, int K, int V>
__device__ __forceinline__ void map_load(const map_shape &s, const unsigned char *side, int64_t first,
                                         map_raw (&r)[K][V])
{
#pragma unroll
    for (int u = 0; u < V; u++) {
        const int64_t vector = first + (int64_t)u * blockDim.x;
        if (u >= s.rounds || vector >= s.vectors) continue;
        map_load_plain<FIRST, N>(s, 0, side, vector, &r[0][u]);
#pragma unroll
        for (int k = 1; k < K; k++) map_load_plain<BYTES, N>(s, k, side, vector, &r[k][u]);
    }
    bool gathers = false;
#pragma unroll
    for (int k = 0; k < K; k++) gathers = gathers || s.operand[k].kind == MAP_GATHER;
    if (gathers && s.narrow) {
#pragma unroll
        for (int u = 0; u < V; u++) {
            const int64_t vector = first + (int64_t)u * blockDim.x;
            if (u < s.rounds && vector < s.vectors)
                map_gather_narrow<FIRST, BYTES, N>(s, side, (uint32_t)(vector * N), u, r);
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        const map_operand &operand = s.operand[k];
        if (operand.kind != MAP_GATHER) continue;
#pragma unroll
        for (int u = 0; u < V; u++) {
            const int64_t vector = first + (int64_t)u * blockDim.x;
            if (u >= s.rounds || vector >= s.vectors) continue;
            r[k][u] = k == 0 ? map_gather<FIRST, N>(s, operand, side + operand.offset, vector * N)
                             : map_gather<BYTES, N>(s, operand, side + operand.offset, vector * N);
        }
    }
}

template <int FIRST, int BYTES, int N, int K, int V>
__device__ __forceinline__ void map_load(const map_flat_shape &s, const unsigned char *side, int64_t first,
                                         map_raw (&r)[K][V])
{
#pragma unroll
    for (int u = 0; u < V; u++) {
        const int64_t vector = first + (int64_t)u * blockDim.x;
        if (u >= s.rounds || vector >= s.vectors) continue;
#pragma unroll
        for (int k = 0; k < K; k++) r[k][u] = map_read<N * BYTES>(side + s.offset[k] + vector * (N * BYTES));
    }
}

/* Behind the loads, of the vector that is computed. */
template <int BYTES>
__device__ __forceinline__ void map_settle(const map_shape &s, int k, map_raw *r)
{
    if (s.operand[k].kind == MAP_SPLAT) map_spread<BYTES>(r);
}
template <int BYTES>
__device__ __forceinline__ void map_settle(const map_flat_shape &, int, map_raw *)
{
}

/* The others move up. */
template <int K, int V>
__device__ __forceinline__ void map_advance(map_raw (&r)[K][V])
{
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int u = 0; u + 1 < V; u++) r[k][u] = r[k][u + 1];
}

__device__ __forceinline__ bool map_is_scalar(const map_shape &s, int k)
{
    return s.operand[k].kind == MAP_SCALAR;
}
__device__ __forceinline__ bool map_is_scalar(const map_flat_shape &, int)
{
    return false;
}

/* --- the kernel ------------------------------------------------------------------------------------------------------------ */

template <class Family, int K, int V, class Shape>
__device__ __forceinline__ void map_unpack(const Shape &s, map_raw (&r)[K][V], int k, typename Family::M scalar,
                                           typename Family::M (&x)[Family::N])
{
    if (map_is_scalar(s, k)) {
#pragma unroll
        for (int i = 0; i < Family::N; i++) x[i] = scalar;
        return;
    }
    map_settle<(int)sizeof(typename Family::T)>(s, k, &r[k][0]);
    if constexpr (sizeof(typename Family::T) == 1) {
        if (s.truths) {
#pragma unroll
            for (int w = 0; w < 4; w++) r[k][0].word[w] = map_truth_bytes(r[k][0].word[w]);
        }
    }
    Family::unpack(r[k][0], x);
}

/* x becomes the result. */
template <class Family, int K>
__device__ __forceinline__ void map_compute(int function, typename Family::M (&x)[K][Family::N],
                                            const map_given<typename Family::M> &given)
{
    if constexpr (K == 1) {
        if constexpr (Family::WHOLE)
            map_one_whole<typename Family::T>(function, x[0], given);
        else
            map_one_real<typename Family::T>(function, x[0], given);
    } else if constexpr (K == 2) {
        if constexpr (Family::WHOLE)
            map_two_whole(function, x[0], x[1], given);
        else
            map_two_real(function, x[0], x[1], given);
    } else {
#pragma unroll
        for (int i = 0; i < Family::N; i++) {
            if constexpr (Family::WHOLE)
                x[0][i] = x[0][i] * x[1][i] + x[2][i];
            else
                x[0][i] = fma(x[0][i], x[1][i], x[2][i]);
        }
    }
}

/* K operands; TRUTH: eq to ge, of two. */
template <class Family, int K, bool TRUTH, class Shape>
__global__ void __launch_bounds__(MAP_THREADS) map_vectors(ks_site site, const __grid_constant__ Shape s)
{
    typedef typename Family::T T;
    typedef typename Family::M M;
    constexpr int N = Family::N, V = K == 1 ? MAP_ONE_VECTORS : MAP_MORE_VECTORS, BYTES = (int)sizeof(T);
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    ks_await(site);
    const int64_t first = (int64_t)blockIdx.x * s.rounds * blockDim.x + threadIdx.x;
    map_raw r[K][V];
    map_load<BYTES, BYTES, N>(s, job.in, first, r);
    ks_start(site);
    const map_given<M> given = map_given_of<M>(s.numbers);
#pragma unroll 1
    for (int u = 0; u < s.rounds; u++) {
        const int64_t vector = first + (int64_t)u * blockDim.x;
        if (vector >= s.vectors) break;
        M x[K][N];
#pragma unroll
        for (int k = 0; k < K; k++) map_unpack<Family>(s, r, k, given.a, x[k]);
        if constexpr (TRUTH) {
            uint32_t truth[N];
            if constexpr (Family::WHOLE)
                map_truths_whole(s.function, x[0], x[1], given.flip, truth);
            else
                map_truths(s.function, x[0], x[1], truth);
            map_store<1, N>(job.out, vector, s.count, map_pack_truths(truth));
        } else {
            map_compute<Family, K>(s.function, x, given);
            map_store<BYTES, N>(job.out, vector, s.count, Family::pack(x[0]));
        }
        map_advance(r);
    }
    ks_leave(site);
}

template <class Family>
static cudaError_t map_start_vectors(const map_launch &l)
{
    const map_flat_shape flat = map_flat_shape_of(l.shape);
    const bool is_flat = l.kernel == MAP_VECTORS_FLAT;
    if (l.work.truth)
        return is_flat ? map_start(map_vectors<Family, 2, true, map_flat_shape>, l, flat)
                       : map_start(map_vectors<Family, 2, true, map_shape>, l, l.shape);
    if (l.work.operands == 1) return map_start(map_vectors<Family, 1, false, map_flat_shape>, l, flat);
    if (l.work.operands == 3) return map_start(map_vectors<Family, 3, false, map_shape>, l, l.shape);
    return is_flat ? map_start(map_vectors<Family, 2, false, map_flat_shape>, l, flat)
                   : map_start(map_vectors<Family, 2, false, map_shape>, l, l.shape);
}

#endif
