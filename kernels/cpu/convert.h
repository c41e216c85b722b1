/* FP16, BF16 and FP8 (ops/numbers/fp8.h) as the host sees them: conversions to and from float and double, rounding to nearest even.
 * NaN stays NaN (quiet, sign kept), overflow gives infinity, subnormals are exact. Any thread. */
#ifndef KS_CONVERT_H
#define KS_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

float ks_fp16_to_float(uint16_t value);
float ks_bf16_to_float(uint16_t value);
uint16_t ks_float_to_fp16(float value);
uint16_t ks_float_to_bf16(float value);
/* One rounding, not two. */
uint16_t ks_double_to_fp16(double value);
uint16_t ks_double_to_bf16(double value);

/* Whole arrays; in and out do not overlap. */
void ks_fp16_to_floats(const uint16_t *in, float *out, size_t count);
void ks_bf16_to_floats(const uint16_t *in, float *out, size_t count);
void ks_floats_to_fp16(const float *in, uint16_t *out, size_t count);
void ks_floats_to_bf16(const float *in, uint16_t *out, size_t count);
void ks_doubles_to_fp16(const double *in, uint16_t *out, size_t count); /* one rounding, not two */
void ks_doubles_to_bf16(const double *in, uint16_t *out, size_t count);
/* Rounded to odd: the last bit says whether the result is exact, so that a second, coarser rounding goes the right way. */
void ks_doubles_to_odd_floats(const double *in, float *out, size_t count);

/* Overflow gives infinity in E5M2, NaN in E4M3. */
void ks_fp8e4m3_to_floats(const uint8_t *in, float *out, size_t count);
void ks_fp8e5m2_to_floats(const uint8_t *in, float *out, size_t count);
void ks_floats_to_fp8e4m3(const float *in, uint8_t *out, size_t count);
void ks_floats_to_fp8e5m2(const float *in, uint8_t *out, size_t count);

/* A copy past the caches, for results too large to be read again from there: without it the processor reads each line
 * before it overwrites it. After the last one ks_large_end(), before another thread may read. */
void ks_large_request(const void *in, void *out, size_t bytes);
void ks_large_end(void);

#ifdef __cplusplus
}
#endif
#endif
