/* Window on the GPU: which kernel, with what launch parameters, and its launch.
 *
 *   window_tile   channels first, where a tile holds windows enough: through shared memory
 *   window_packs  any other: 16 bytes of the output by a thread
 *
 * Words are as wide as the runs of both sides and their places allow. */
#include "cuda/window/packs.cuh"
#include "cuda/window/tiles.cuh"
#include "cuda/op.h"

#include <stdio.h>
#include <string.h>

enum window_family { WINDOW_PACKS, WINDOW_TILES };
enum {
    CTAS_SM = 8,             /* that a grid has at most */
    FEW_THREADS = 64,        /* of a CTA where not every SM would get one */
    TILE_LEAST = 16,         /* windows and channels of a tile, at least */
    MAPPED_AGAIN = 64 << 10, /* bytes that may be read more than once over the link */
    SECTOR_BYTES = 32        /* that the link moves at least */
};

struct window_launch {
    window_family family;
    window_args<int64_t> a;
    bool narrow; /* the numbers of packs go into 32 bits */
    window_tiles t;
    int word; /* bytes */
    int threads;
    size_t shared_bytes;
    int64_t grid;
};

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

/* --- as words -------------------------------------------------------------------------------------------------------- */

static window_axis<int64_t> axis_of(const ks_windows_axis &axis, int64_t from)
{
    return {ks_divider_of(axis.out), ks_divider_of(axis.size), axis.in, axis.stride, axis.dilation, axis.before, from};
}

/* Whether a row of taps is a run of the input, wherever its window is. */
static bool taps_join(const ks_windows &w)
{
    return !w.padded && !w.channels_first && (w.x.dilation == 1 || w.x.size == 1);
}

/* Elements of a word, which are neighbours on both sides and begin at multiples: as many as 16 bytes hold, or fewer. */
static int64_t word_of(const ks_windows &w, int size)
{
    const int64_t run = taps_join(w) ? w.channels * w.x.size : w.channels;
    const int64_t step = taps_join(w) && w.x.out > 1 ? w.channels * w.x.stride : run;
    const int64_t line = taps_join(w) && (w.y.in > 1 || w.lead > 1) ? w.channels * w.x.in : run;
    int64_t n = w.channels_first ? 1 : 16 / size;
    while (run % n != 0 || step % n != 0 || line % n != 0) n /= 2;
    return n;
}

/* Whether what a place is made of stays below the border, too, where places lie outside. A stride or a dilation counts only where there is
 * a second window or tap. */
static bool is_narrow(const window_axis<int64_t> &axis)
{
    const auto far = [](int64_t count, int64_t step) { return (double)(count - 1) * (double)step; };
    const int64_t most = WINDOW_NARROW_MOST;
    return axis.in < most && axis.before < most && axis.stride < most && axis.dilation < most && axis.from < most &&
           far(axis.windows.by, axis.stride) + far(axis.taps.by, axis.dilation) < (double)most;
}

static void args_of(const ks_spec *spec, window_launch *go)
{
    const int size = (int)ks_dtype_size(spec->in[0].dtype);
    const ks_windows w = ks_windows_of(spec);
    const int64_t n = word_of(w, size), lines = w.y.in * w.x.in;
    window_args<int64_t> *a = &go->a;
    a->in = spec->in[0].offset;
    a->out = spec->out[0].offset;
    a->y = axis_of(w.y, w.channels_first ? w.x.in : w.channels * w.x.in / n);
    a->x = axis_of(w.x, w.channels_first ? 1 : w.channels / n);
    a->inner = ks_divider_of(w.channels / n);
    a->word_from = w.channels_first ? lines : 1;
    a->lead_from = w.channels * lines / n;
    a->items = ks_tensor_count(&spec->out[0]) / n;
    if (taps_join(w)) { /* an index of x is a window */
        a->x = axis_of({w.x.out, w.x.out, 1, 1, 1, 0}, w.channels * w.x.stride / n);
        a->inner = ks_divider_of(w.channels * w.x.size / n);
    }
    for (int i = 0; i < 16; i += size) memcpy((unsigned char *)&a->fill + i, &w.fill, (size_t)size);
    go->word = (int)n * size;
    go->narrow = a->items < WINDOW_NARROW_MOST && w.lead * a->lead_from < WINDOW_NARROW_MOST && is_narrow(a->x) &&
                 is_narrow(a->y);
}

static window_axis<int32_t> narrow_axis(const window_axis<int64_t> &axis)
{
    return {window_divider32_of((int32_t)axis.windows.by),
            window_divider32_of((int32_t)axis.taps.by),
            (int32_t)axis.in,
            (int32_t)axis.stride,
            (int32_t)axis.dilation,
            (int32_t)axis.before,
            (int32_t)axis.from};
}

static window_args<int32_t> narrow_args(const window_args<int64_t> &a)
{
    return {a.in,
            a.out,
            narrow_axis(a.y),
            narrow_axis(a.x),
            window_divider32_of((int32_t)a.inner.by),
            (int32_t)a.word_from,
            (int32_t)a.lead_from,
            (int32_t)a.items,
            (int32_t)a.cta,
            (int32_t)a.step,
            a.fill};
}

/* --- as tiles -------------------------------------------------------------------------------------------------------- */

/* Windows that fit a tile with so many taps of each; 0: none does. */
static int64_t windows_of(const ks_windows_axis &x, int64_t taps, int size)
{
    const int64_t room = window_span_max(size) - 1;
    if (taps > 1 && (x.dilation > room || (taps - 1) * x.dilation > room)) return 0;
    const int64_t most = (room - (taps - 1) * x.dilation) / x.stride + 1;
    return most < x.out ? most : x.out;
}

/* All taps of a row, or one; false: neither is worth a tile. */
static bool choose_tile(const ks_windows &w, int size, window_tiles *t)
{
    const auto enough = [&](int64_t windows) { return windows >= TILE_LEAST || windows == w.x.out; };
    if (!w.channels_first || w.channels < TILE_LEAST) return false;
    int64_t taps = w.x.size <= window_span_max(size) ? w.x.size : 1, windows = windows_of(w.x, taps, size);
    if (!enough(windows)) windows = windows_of(w.x, taps = 1, size);
    if (!enough(windows)) return false;
    t->windows = (int)windows;
    t->taps = (int)taps;
    t->span = (int)((windows > 1 ? (windows - 1) * w.x.stride : 0) + (taps > 1 ? (taps - 1) * w.x.dilation : 0) + 1);
    t->across = ks_divider_of(over(w.x.out, windows));
    t->groups = ks_divider_of(w.x.size / taps);
    t->columns = ks_divider_of(over(w.channels, WINDOW_CHANNELS));
    t->tiles = w.lead * w.y.out * w.y.size * t->across.by * t->groups.by * t->columns.by;
    t->channels = w.channels;
    return true;
}

/* --- what is launched ------------------------------------------------------------------------------------------------ */

static window_launch launch_of(const ks_chip *chip, const ks_spec *spec)
{
    window_launch go = {};
    int64_t work;
    go.threads = WINDOW_THREADS;
    args_of(spec, &go);
    if (choose_tile(ks_windows_of(spec), go.word, &go.t)) {
        go.family = WINDOW_TILES;
        go.shared_bytes = (size_t)(go.t.span * window_tile_pitch(go.word) * go.word);
        work = go.t.tiles * WINDOW_THREADS;
    } else {
        work = over(go.a.items, 16 / go.word);
        if (over(work, WINDOW_THREADS) < chip->sms) go.threads = FEW_THREADS;
    }
    const int64_t room = (int64_t)chip->sms * CTAS_SM;
    int64_t ctas = over(work, go.threads);
    if (go.family == WINDOW_TILES) {
        ctas = ctas < room ? ctas : room;
    } else if (ctas <= room) { /* a pack of each thread */
        go.a.cta = go.threads;
        go.a.step = ctas * go.threads;
    } else { /* CTAs follow each other along the output */
        go.a.step = go.threads;
        go.a.cta = go.threads * window_flight(go.word);
        ctas = over(work, go.a.cta);
    }
    go.grid = ctas < 1 ? 1 : ctas < INT32_MAX ? ctas : (int64_t)INT32_MAX;
    return go;
}

template <class W>
static cudaError_t run_packs(const window_launch &go, ks_site site, int bucket, cudaStream_t stream)
{
    const dim3 grid((unsigned)go.grid, (unsigned)bucket);
    if (go.narrow)
        return ks_launch(window_packs<W, int32_t>, grid, go.threads, 0, false, stream, site, narrow_args(go.a));
    return ks_launch(window_packs<W, int64_t>, grid, go.threads, 0, false, stream, site, go.a);
}

template <class W>
static cudaError_t run(const window_launch &go, ks_site site, int bucket, cudaStream_t stream)
{
    if (go.family != WINDOW_TILES) return run_packs<W>(go, site, bucket, stream);
    return ks_launch(window_tile<W>, dim3((unsigned)go.grid, (unsigned)bucket), go.threads, go.shared_bytes, false,
                     stream, site, go.a, go.t);
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    (void)algorithm;
    const window_launch go = launch_of(chip, spec);
    cudaError_t status;
    switch (go.word) {
    case 1:
        status = run<uint8_t>(go, site, bucket, stream);
        break;
    case 2:
        status = run<uint16_t>(go, site, bucket, stream);
        break;
    case 4:
        status = run<uint32_t>(go, site, bucket, stream);
        break;
    case 8:
        status = run<unsigned long long>(go, site, bucket, stream);
        break;
    default:
        status = run_packs<uint4>(go, site, bucket, stream);
        break;
    }
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "window: launch failed: %s", cudaGetErrorString(status));
}

/* --- what is chosen -------------------------------------------------------------------------------------------------- */

/* Elements are read for each window that they lie under, and where they lie apart by the sector, over the link on mapped slots. */
static bool reads_once(const ks_spec *spec, const window_launch &go)
{
    if (go.grid > KS_GRID_MAX) return false;
    const bool apart = go.family == WINDOW_PACKS && go.a.word_from != 1;
    const double again = apart ? (double)SECTOR_BYTES / go.word : 1;
    return (double)spec->out[0].size_bytes * again <= (double)(spec->in[0].size_bytes + MAPPED_AGAIN);
}

/* ks_cuda_plan_fn */
static ks_status cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    const window_launch go = launch_of(chip, spec);
    out->once = reads_once(spec, go);
    out->batch_max = (int)KS_BATCH_MAX;
    out->workspace_bytes = 0;
    out->counters = 0;
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "window_%s<%d bytes>",
             go.family == WINDOW_TILES ? "tile" : "packs", go.word);
    out->kernel_info.grid = go.grid;
    out->kernel_info.threads = go.threads;
    out->kernel_info.cluster = 1;
    out->kernel_info.shared_bytes = go.shared_bytes;
    return KS_OK;
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

extern const ks_cuda_op ks_window_cuda;
const ks_cuda_op ks_window_cuda = {.setup = cuda_setup,
                                   .plan = cuda_plan,
                                   .launch = cuda_launch,
                                   .join = NULL,
                                   .candidates = NULL,
                                   .adopt = NULL,
                                   .revision = NULL,
                                   .starts_anywhere = NULL};
