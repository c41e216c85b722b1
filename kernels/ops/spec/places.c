/* Values that decide: which is out of its bounds, and the sentence about it.
 *
 * Interface  places.h.
 * Threads    any. */
#include "ops/spec/places.h"
#include "ops/numbers/clones.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIRST_OUTSIDE(name, type)                                                                                       \
    /* The first one outside [least, most]; count: there is none. Whole blocks first, which the compiler vectorises. */ \
    KS_CLONES static int64_t name(const type *values, int64_t count, int64_t least, int64_t most)                       \
    {                                                                                                                   \
        enum { BLOCK = 256 };                                                                                           \
        int64_t i = 0;                                                                                                  \
        for (; i + BLOCK <= count; i += BLOCK) {                                                                        \
            int outside = 0;                                                                                            \
            for (int j = 0; j < BLOCK; j++) outside |= (values[i + j] < least) | (values[i + j] > most);                \
            if (outside) break;                                                                                         \
        }                                                                                                               \
        while (i < count && values[i] >= least && values[i] <= most) i++;                                               \
        return i;                                                                                                       \
    }
FIRST_OUTSIDE(first_outside_int32, int32_t)
FIRST_OUTSIDE(first_outside_int64, int64_t)

bool ks_places_outside(const ks_tensor *tensor, const void *values, int64_t least, int64_t most, int64_t *place)
{
    const int64_t count = ks_tensor_count(tensor);
    *place = tensor->dtype == KS_INT32 ? first_outside_int32(values, count, least, most)
                                       : first_outside_int64(values, count, least, most);
    return *place < count;
}

bool ks_places_falling(const ks_tensor *offsets, const void *values, int64_t extent, int64_t *place)
{
    const int64_t last = offsets->dims[0] - 1;
    int64_t before = 0;
    for (int64_t i = 0; i <= last; i++) {
        const int64_t at = ks_places_value(offsets->dtype, values, i);
        *place = i;
        if (at < before || at > extent || (i == 0 && at != 0) || (i == last && at != extent)) return true;
        before = at;
    }
    return false;
}

ks_status ks_places_refuse_offset(const ks_spec *spec, const ks_bad_value *bad, int64_t extent, const char *of,
                                  ks_error *error)
{
    const int64_t last = spec->in[bad->input].dims[0] - 1;
    return ks_fail(error, KS_RANGE,
                   "%s: %s (%s) has %" PRId64 " at place %" PRId64
                   ": they begin at 0, do not fall, and end at place %" PRId64 " with %" PRId64 ", %s",
                   spec->op->name, spec->op->inputs[bad->input].name, spec->op->inputs[bad->input].role, bad->value,
                   bad->place, last, extent, of);
}

/* Bits of numbers above 0 are in their order; infinity's are the first behind the finite ones. */
bool ks_places_no_scale(const ks_spec *spec, const void *const *in, int input, ks_bad_value *bad)
{
    ks_tensor bits = spec->in[input];
    int64_t place;
    bits.dtype = KS_INT32;
    if (!in[input] || !ks_places_outside(&bits, in[input], 0x00800000, 0x7F7FFFFF, &place)) return false;
    *bad = (ks_bad_value){.input = input, .place = place, .value = ks_places_value(KS_INT32, in[input], place)};
    return true;
}

ks_status ks_places_refuse_scale(const ks_spec *spec, const ks_bad_value *bad, ks_error *error)
{
    char place[KS_PLACE_TEXT_MAX];
    const uint32_t bits = (uint32_t)bad->value;
    float value;
    memcpy(&value, &bits, sizeof value);
    ks_places_text(&spec->in[bad->input], bad->place, place);
    return ks_fail(error, KS_RANGE, "%s: %s (%s) has %g at place %s: takes finite numbers of at least 2^-126",
                   spec->op->name, spec->op->inputs[bad->input].name, spec->op->inputs[bad->input].role, (double)value,
                   place);
}

void ks_places_text(const ks_tensor *tensor, int64_t place, char out[KS_PLACE_TEXT_MAX])
{
    ks_tensor at = {.rank = tensor->rank};
    char text[KS_RANK_MAX * 21];
    for (int i = tensor->rank - 1; i >= 0; i--) {
        at.dims[i] = tensor->dims[i] ? place % tensor->dims[i] : 0;
        place = tensor->dims[i] ? place / tensor->dims[i] : 0;
    }
    ks_dims_text(&at, text, sizeof text);
    const bool list = tensor->rank != 1;
    snprintf(out, KS_PLACE_TEXT_MAX, "%s%s%s", list ? "[" : "", text, list ? "]" : "");
}
