/* Values that decide: inputs of INT32 or INT64 whose numbers say where others are read (indices, lengths, offsets), and which of them
 * is out of its bounds first. */
#ifndef KS_OPS_PLACES_H
#define KS_OPS_PLACES_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_PLACES_DTYPES = KS_DTYPE_BIT(KS_INT32) | KS_DTYPE_BIT(KS_INT64) };

/* Number i. */
static inline int64_t ks_places_value(ks_dtype dtype, const void *values, int64_t i)
{
    return dtype == KS_INT32 ? (int64_t)((const int32_t *)values)[i] : ((const int64_t *)values)[i];
}

/* The first of the tensor's numbers that is outside [least, most]. false: there is none. */
bool ks_places_outside(const ks_tensor *tensor, const void *values, int64_t least, int64_t most, int64_t *place);
/* Offsets begin at 0, do not fall, and end with `extent`: the first one that does not. false: there is none. */
bool ks_places_falling(const ks_tensor *offsets, const void *values, int64_t extent, int64_t *place);
/* KS_RANGE: the sentence about an offset; of: what the extent is, "the number of indices". */
ks_status ks_places_refuse_offset(const ks_spec *spec, const ks_bad_value *bad, int64_t extent, const char *of,
                                  ks_error *error);

/* Scales: FP32, finite, KS_SCALE_LEAST at least, so that their reciprocals are finite too. The first of an input's (NULL: passed over) that is not; KS_RANGE and the sentence about it, whose value is
 * its bits. */
#define KS_SCALE_LEAST 0x1p-126f
bool ks_places_no_scale(const ks_spec *spec, const void *const *in, int input, ks_bad_value *bad);
ks_status ks_places_refuse_scale(const ks_spec *spec, const ks_bad_value *bad, ks_error *error);

/* A place as indices tell it: "3", or of a tensor of more dimensions "[0,3]". */
enum { KS_PLACE_TEXT_MAX = KS_RANK_MAX * 21 + 2 };
void ks_places_text(const ks_tensor *tensor, int64_t place, char out[KS_PLACE_TEXT_MAX]);

#ifdef __cplusplus
}
#endif
#endif
