/* What every backend knows of window: the places of its parameters, and a resolved one in numbers. */
#ifndef KS_OPS_WINDOW_H
#define KS_OPS_WINDOW_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_WINDOWS_SIZE,
    KS_WINDOWS_STRIDE,
    KS_WINDOWS_DILATION,
    KS_WINDOWS_PAD,
    KS_WINDOWS_AUTO_PAD,
    KS_WINDOWS_LAYOUT,
    KS_WINDOWS_VALUE,
    KS_WINDOWS_PARAMS
};
enum { KS_WINDOWS_SPATIAL_MAX = 2 };
typedef enum ks_windows_layout { KS_WINDOWS_NHWC, KS_WINDOWS_NCHW } ks_windows_layout;
typedef enum ks_windows_auto_pad {
    KS_WINDOWS_GIVEN, /* as `pad` says */
    KS_WINDOWS_SAME_UPPER,
    KS_WINDOWS_SAME_LOWER
} ks_windows_auto_pad;

/* Tap t of window w lies at index w * stride + t * dilation - before of the input; outside [0, in) it is the value. */
typedef struct ks_windows_axis {
    int64_t in, out, size, stride, dilation, before;
} ks_windows_axis;

/* As [lead, y, x, channels], or [lead, channels, y, x], to [lead, out y, out x, size y, size x, channels]. Of one spatial axis y has one
 * window of one tap. */
typedef struct ks_windows {
    int64_t lead, channels;
    bool channels_first; /* and not the same elements as channels last */
    bool padded;         /* some tap is outside */
    ks_windows_axis y, x;
    uint64_t fill; /* the bits of an element outside */
} ks_windows;

/* The spec is resolved, and its output has elements. */
ks_windows ks_windows_of(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
