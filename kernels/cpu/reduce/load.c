/* Elements of every datatype, a line at a time, as double or int64_t. */
#include "cpu/reduce/elements.h"
#include "cpu/convert.h"
#include "cpu/simd.h"

#define LOADER(name, in_type, out_type, out_array, expression)                                                         \
    KS_CLONES static void name(const void *in, int64_t at, int64_t stride, int count, work *restrict w)                \
    {                                                                                                                  \
        const in_type *x = (const in_type *)in + at;                                                                   \
        if (stride == 1)                                                                                               \
            for (int i = 0; i < count; i++) w->out_array[i] = (out_type)(expression(x[i]));                            \
        else                                                                                                           \
            for (int i = 0; i < count; i++) w->out_array[i] = (out_type)(expression(x[i * stride]));                   \
    }
LOADER(load_raw, uint16_t, uint16_t, raw, )
LOADER(load_fp32, float, double, x.d, )
LOADER(load_fp64, double, double, x.d, )
LOADER(load_double_int8, int8_t, double, x.d, )
LOADER(load_double_int16, int16_t, double, x.d, )
LOADER(load_double_int32, int32_t, double, x.d, )
LOADER(load_double_int64, int64_t, double, x.d, )
LOADER(load_double_uint8, uint8_t, double, x.d, )
LOADER(load_double_uint16, uint16_t, double, x.d, )
LOADER(load_double_uint32, uint32_t, double, x.d, )
LOADER(load_double_uint64, uint64_t, double, x.d, )
LOADER(load_int8, int8_t, int64_t, x.i, )
LOADER(load_int16, int16_t, int64_t, x.i, )
LOADER(load_int32, int32_t, int64_t, x.i, )
LOADER(load_int64, int64_t, int64_t, x.i, )
LOADER(load_uint8, uint8_t, int64_t, x.i, )
LOADER(load_uint16, uint16_t, int64_t, x.i, )
LOADER(load_uint32, uint32_t, int64_t, x.i, )
LOADER(load_ordered, uint64_t, int64_t, x.i, ORDERED)

KS_CLONES static void widen(const float *x, double *restrict out, int count)
{
    for (int i = 0; i < count; i++) out[i] = (double)x[i];
}

static void load_half(const void *in, int64_t at, int64_t stride, int count, work *w,
                      void (*convert)(const uint16_t *, float *, size_t))
{
    const uint16_t *raw = (const uint16_t *)in + at;
    if (stride != 1) {
        load_raw(in, at, stride, count, w);
        raw = w->raw;
    }
    convert(raw, w->single, (size_t)count);
    widen(w->single, w->x.d, count);
}

static void load_fp16(const void *in, int64_t at, int64_t stride, int count, work *restrict w)
{
    load_half(in, at, stride, count, w, ks_fp16_to_floats);
}

static void load_bf16(const void *in, int64_t at, int64_t stride, int count, work *restrict w)
{
    load_half(in, at, stride, count, w, ks_bf16_to_floats);
}

load_fn *ks_reduce_loader(ks_dtype dtype, bool real, bool ordered)
{
    switch (dtype) {
    case KS_FP16:
        return load_fp16;
    case KS_BF16:
        return load_bf16;
    case KS_FP32:
        return load_fp32;
    case KS_FP64:
        return load_fp64;
    case KS_INT8:
        return real ? load_double_int8 : load_int8;
    case KS_INT16:
        return real ? load_double_int16 : load_int16;
    case KS_INT32:
        return real ? load_double_int32 : load_int32;
    case KS_INT64:
        return real ? load_double_int64 : load_int64;
    case KS_BOOL:
    case KS_UINT8:
        return real ? load_double_uint8 : load_uint8;
    case KS_UINT16:
        return real ? load_double_uint16 : load_uint16;
    case KS_UINT32:
        return real ? load_double_uint32 : load_uint32;
    default:
        return real ? load_double_uint64 : ordered ? load_ordered : load_int64;
    }
}
