/* Channels first: the input's lines run along x, the output's along the channels. A line's part of 64 channels goes through shared memory
 * once for all taps of a row that lie on it: each side is read and written along its own lines. */
#ifndef KS_WINDOW_TILES_CUH
#define KS_WINDOW_TILES_CUH

#include "cuda/window/common.cuh"

enum { WINDOW_CHANNELS = 64 };

/* Elements along x that a tile holds. */
__host__ __device__ constexpr int window_span_max(int size)
{
    return size < 8 ? 128 : 64;
}

/* From one x of a tile to the next, in elements: in shared memory it begins a bank further on. */
__host__ __device__ constexpr int window_tile_pitch(int size)
{
    return WINDOW_CHANNELS + (size < 4 ? 4 / size : 1);
}

/* A tile: a row of taps, `windows` of the windows along x with `taps` of their taps, and 64 channels. */
struct window_tiles {
    int windows, taps, span;            /* span: elements along x under them */
    ks_divider across, groups, columns; /* tiles along the windows, along the taps, and along the channels */
    int64_t tiles, channels;
};

template <class W>
__global__ void __launch_bounds__(WINDOW_THREADS) window_tile(ks_site site, window_args<int64_t> a, window_tiles t)
{
    constexpr int PITCH = window_tile_pitch((int)sizeof(W)), LINES = WINDOW_THREADS / WINDOW_CHANNELS;
    W *tile = (W *)ks_dynamic; /* [x][channel] */
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const W *in = (const W *)(job.in + a.in);
    W *out = (W *)(job.out + a.out);
    const int lane = (int)threadIdx.x % WINDOW_CHANNELS, line = (int)threadIdx.x / WINDOW_CHANNELS;
    const int64_t across = a.x.taps.by * t.channels; /* elements of a row of taps */
    for (int64_t at = blockIdx.x; at < t.tiles; at += gridDim.x) {
        int64_t left = t.columns.of(at), item = left;
        const int64_t channel = (at - left * t.columns.by) * WINDOW_CHANNELS;
        left = t.groups.of(item);
        const int64_t tap = (item - left * t.groups.by) * t.taps;
        item = left;
        left = t.across.of(item);
        const int64_t window = (item - left * t.across.by) * t.windows;
        item = left;
        left = a.y.taps.of(item);
        const int64_t tap_y = item - left * a.y.taps.by;
        item = left;
        left = a.y.windows.of(item);
        const int64_t window_y = item - left * a.y.windows.by, y = window_place(a.y, window_y, tap_y);
        const int64_t x = window_place(a.x, window, tap), from = left * a.lead_from + y * a.y.from + x;
        const bool inside = window_inside(a.y, y);
        for (int c = line; c < WINDOW_CHANNELS; c += LINES)
            for (int i = lane; i < t.span; i += WINDOW_CHANNELS) {
                if (channel + c >= t.channels) continue;
                const bool real = inside && window_inside(a.x, x + i);
                tile[i * PITCH + c] = real ? __ldg(in + from + (channel + c) * a.word_from + i) : *(const W *)&a.fill;
            }
        __syncthreads();
        const int windows = a.x.windows.by - window < t.windows ? (int)(a.x.windows.by - window) : t.windows;
        const int64_t row = (left * a.y.windows.by + window_y) * a.x.windows.by + window;
        W *to = out + (row * a.y.taps.by + tap_y) * across + tap * t.channels + channel;
        for (int p = line; p < windows * t.taps && channel + lane < t.channels; p += LINES) {
            const int w = p / t.taps, k = p - w * t.taps;
            to[w * a.y.taps.by * across + k * t.channels + lane] =
                tile[(w * (int)a.x.stride + k * (int)a.x.dilation) * PITCH + lane];
        }
        __syncthreads();
    }
    ks_leave(site);
}

#endif
