/* map of integers, which wrap, and of BOOL as bytes of 0 and 1. */
#include "cpu/map/map.h"
#include "cpu/simd.h"

#include <math.h>

#define T int8_t
#define W uint32_t
#define IS_SIGNED 1
#define LEAST INT8_MIN
#define MOST INT8_MAX
#define LOOPS_NAME(name) int8_##name
#include "cpu/map/integer_loops.h"

#define T int16_t
#define W uint32_t
#define IS_SIGNED 1
#define LEAST INT16_MIN
#define MOST INT16_MAX
#define LOOPS_NAME(name) int16_##name
#include "cpu/map/integer_loops.h"

#define T int32_t
#define W uint32_t
#define IS_SIGNED 1
#define LEAST INT32_MIN
#define MOST INT32_MAX
#define LOOPS_NAME(name) int32_##name
#include "cpu/map/integer_loops.h"

#define T int64_t
#define W uint64_t
#define IS_SIGNED 1
#define LEAST INT64_MIN
#define MOST INT64_MAX
#define LOOPS_NAME(name) int64_##name
#include "cpu/map/integer_loops.h"

#define T uint8_t
#define W uint32_t
#define IS_SIGNED 0
#define LEAST 0
#define MOST UINT8_MAX
#define LOOPS_NAME(name) uint8_##name
#include "cpu/map/integer_loops.h"

#define T uint16_t
#define W uint32_t
#define IS_SIGNED 0
#define LEAST 0
#define MOST UINT16_MAX
#define LOOPS_NAME(name) uint16_##name
#include "cpu/map/integer_loops.h"

#define T uint32_t
#define W uint32_t
#define IS_SIGNED 0
#define LEAST 0
#define MOST UINT32_MAX
#define LOOPS_NAME(name) uint32_##name
#include "cpu/map/integer_loops.h"

#define T uint64_t
#define W uint64_t
#define IS_SIGNED 0
#define LEAST 0
#define MOST UINT64_MAX
#define LOOPS_NAME(name) uint64_##name
#include "cpu/map/integer_loops.h"

static ks_map_apply_fn *const of_dtype[] = {
    [KS_BOOL] = uint8_apply,    [KS_UINT8] = uint8_apply,   [KS_UINT16] = uint16_apply,
    [KS_UINT32] = uint32_apply, [KS_UINT64] = uint64_apply, [KS_INT8] = int8_apply,
    [KS_INT16] = int16_apply,   [KS_INT32] = int32_apply,   [KS_INT64] = int64_apply,
};

/* ks_map_apply_fn */
void ks_map_integers(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    of_dtype[work->dtype](work, in, out, count);
}
