/* CUDA's words for a CPU: what the kernels use of CUDA C++ and of its runtime, over grid.h.
 * Found in the place of the toolkit's header of this name, and before anything else of a file that is emulated. */
#ifndef KS_EMULATE_CUDA_RUNTIME_H
#define KS_EMULATE_CUDA_RUNTIME_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <type_traits>

#define __CUDACC__ 1
#define __CUDA_ARCH_FEAT_SM90_ALL 1 /* wgmma's kernels are there; __CUDA_ARCH__ is not, as for a host */
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local /* a thread of the CPU works on one CTA at a time */

/* A GPU's NaN from arithmetic with doubles has its sign set, and |x| is arithmetic there. */
static inline double emulated_fabs(double x)
{
    return isnan(x) ? -NAN : fabs(x);
}
#define fabs emulated_fabs

struct uint2 {
    uint32_t x, y;
};
struct uint3 {
    uint32_t x, y, z;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct dim3 {
    uint32_t x, y, z;
    constexpr dim3(uint32_t x_ = 1, uint32_t y_ = 1, uint32_t z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

#include "grid.h"

extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;

/* --- threads among each other ---------------------------------------------------------------------------------------- */

static inline void __syncthreads()
{
    emulate_barrier(false);
}
static inline int __syncthreads_or(int mine)
{
    return emulate_barrier(mine != 0);
}
static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __syncwarp()
{
    const char mine = 0;
    char other;
    emulate_exchange(&mine, &other, sizeof mine, (int)threadIdx.x % 32);
}
template <class T>
static inline T __shfl_xor_sync(uint32_t, T mine, int distance)
{
    T other;
    emulate_exchange(&mine, &other, sizeof mine, (int)(threadIdx.x % 32) ^ distance);
    return other;
}
template <class T>
static inline T __shfl_sync(uint32_t, T mine, int lane)
{
    T other;
    emulate_exchange(&mine, &other, sizeof mine, lane);
    return other;
}
template <class T>
static inline T __shfl_up_sync(uint32_t, T mine, int distance)
{
    const int lane = (int)threadIdx.x % 32;
    T other;
    emulate_exchange(&mine, &other, sizeof mine, lane < distance ? lane : lane - distance);
    return other;
}
static inline int __any_sync(uint32_t, int mine)
{
    for (int distance = 1; distance < 32; distance *= 2) mine |= __shfl_xor_sync(~0u, mine, distance);
    return mine;
}
static inline uint32_t __ballot_sync(uint32_t, int mine)
{
    uint32_t lanes = (uint32_t)(mine != 0) << threadIdx.x % 32;
    for (int distance = 1; distance < 32; distance *= 2) lanes |= __shfl_xor_sync(~0u, lanes, distance);
    return lanes;
}
static inline int __popc(uint32_t word)
{
    return __builtin_popcount(word);
}
template <class T>
static inline T atomicAdd(T *at, T value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
static inline uint32_t atomicOr(uint32_t *at, uint32_t value)
{
    return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST);
}
static inline void atomicMax(unsigned long long *at, unsigned long long value)
{
    unsigned long long was = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (was < value && !__atomic_compare_exchange_n(at, &was, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}
template <class T>
static inline T __ldg(const T *at)
{
    return *at;
}
template <class T>
static inline T __ldcg(const T *at)
{
    return *at;
}
template <class T>
static inline void __stcs(T *at, T value)
{
    *at = value;
}

/* --- numbers --------------------------------------------------------------------------------------------------------- */

using std::isinf;
using std::isnan;

template <class A, class B>
static constexpr std::common_type_t<A, B> min(A a, B b)
{
    return b < a ? b : a;
}
template <class A, class B>
static constexpr std::common_type_t<A, B> max(A a, B b)
{
    return a < b ? b : a;
}
template <class To, class From>
static inline To emulate_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline uint32_t __float_as_uint(float x)
{
    return emulate_bits<uint32_t>(x);
}
static inline float __uint_as_float(uint32_t x)
{
    return emulate_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return emulate_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return emulate_bits<double>(x);
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline uint64_t __umul64hi(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b >> 64);
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t bits)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (bits & 31));
}
static inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t bits)
{
    return (uint32_t)(((uint64_t)high << 32 | low) << (bits & 31) >> 32);
}
static inline uint32_t __vmaxu2(uint32_t a, uint32_t b)
{
    return std::max(a & 0xFFFF, b & 0xFFFF) | std::max(a & 0xFFFF0000u, b & 0xFFFF0000u);
}
static inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t select)
{
    const uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t picked = 0;
    for (int i = 0; i < 4; i++) picked |= (uint32_t)(bytes >> (select >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
    return picked;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

/* --- launches -------------------------------------------------------------------------------------------------------- */

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize,
    cudaFuncAttributeNonPortableClusterSizeAllowed /* here clusters of 16 are always allowed */
};
enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative,
    cudaLaunchAttributeClusterDimension,
    cudaLaunchAttributeProgrammaticStreamSerialization,
    cudaLaunchAttributePreferredSharedMemoryCarveout
};
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
enum { cudaEnableDefault };
enum { cudaSharedmemCarveoutMaxShared = 100 };
typedef void *cudaStream_t, *cudaEvent_t, *cudaGraph_t, *cudaGraphExec_t, *cudaGraphNode_t;
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int cooperative;
        struct {
            uint32_t x, y, z;
        } clusterDim;
        int programmaticStreamSerializationAllowed;
        unsigned sharedMemCarveout;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    int ptxVersion, numRegs;
};

static inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}
static inline const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "invalid value";
}
static inline cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) emulate_allow(kernel, (size_t)value);
    return cudaSuccess;
}
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *)
{
    *out = {.sharedSizeBytes = 1, .ptxVersion = 90, .numRegs = 32}; /* there is code in each kernel */
    return cudaSuccess;
}
/* Memory is all of one kind, and a copy is done when it returns. */
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}
/* An event is the time at which it is recorded. */
static inline cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = calloc(1, sizeof(int64_t));
    return *event ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}
static inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *(int64_t *)event = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    return cudaSuccess;
}
static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (*(int64_t *)from == 0 || *(int64_t *)to == 0) return cudaErrorInvalidValue;
    *ms = (float)(*(int64_t *)to - *(int64_t *)from) / 1e6f;
    return cudaSuccess;
}
/* As an SM of 2048 threads has them. */
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *, int threads, size_t)
{
    *count = 2048 / threads;
    return threads > 0 ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaOccupancyMaxActiveClusters(int *count, const void *, const cudaLaunchConfig_t *config)
{
    *count = emulate_chip_now.sms / (int)config->attrs->val.clusterDim.x;
    return cudaSuccess;
}
/* cuda.h has the one there is. */
extern "C" void *emulate_driver(const char *name);
static inline cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned, int,
                                                           cudaDriverEntryPointQueryResult *found)
{
    *out = emulate_driver(name);
    *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

static inline emulate_grid emulate_grid_of(const cudaLaunchConfig_t *config, const void *kernel)
{
    emulate_grid grid = {kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, false, 1, false};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == cudaLaunchAttributeCooperative) grid.together = true;
        if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) grid.early = true;
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
            grid.cluster = config->attrs[i].val.clusterDim.x;
    }
    return grid;
}
template <class... Taken, class... Given>
static cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Taken...), const Given &...given)
{
    return emulate_run(emulate_grid_of(config, (const void *)kernel), [&] { kernel(given...); })
               ? cudaSuccess
               : cudaErrorInvalidValue;
}
/* Calls a kernel of matmul. */
void emulate_call(const void *kernel, void **arguments);
static inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments)
{
    return emulate_run(emulate_grid_of(config, kernel), [&] { emulate_call(kernel, arguments); })
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

#include "ptx.h"

#endif
