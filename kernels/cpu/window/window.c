/* Windows on the CPU: the reference. Channels last, a row of taps is a run of the input; channels first, lines of the input are turned into
 * columns of a band of channels, from which each tap is a run.
 *
 * Owns     nothing.
 * Threads  any; all memory is the caller's. */
#include "ops/window/window.h"

#include <string.h>

#include "cpu/fill.h"
#include "cpu/reference.h"

enum { BAND = 64 /* channels that are turned at once */ };
extern const ks_cpu_op ks_window_cpu;

typedef struct task {
    ks_windows w;
    size_t size;       /* of an element */
    int64_t window;    /* elements of one */
    unsigned char *to; /* of this index of the leading axes */
} task;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where a tap of a window lies in the input; outside: below 0, or from the extent on. */
static int64_t place_of(const ks_windows_axis *a, int64_t window, int64_t tap)
{
    return window * a->stride + tap * a->dilation - a->before;
}

static bool is_inside(const ks_windows_axis *a, int64_t place)
{
    return place >= 0 && place < a->in;
}

/* --- channels last --------------------------------------------------------------------------------------------------- */

/* A row of a window: taps that are neighbours in the input, between those in front of it and those behind. */
static void put_run(const task *t, const unsigned char *line, int64_t x, unsigned char *to)
{
    const ks_windows *w = &t->w;
    const int64_t taps = w->x.size, first = least(x < 0 ? -x : 0, taps);
    const int64_t end = x >= w->x.in ? first : least(w->x.in - x, taps);
    const size_t tap = (size_t)w->channels * t->size;
    if (first > 0) ks_cpu_fill(to, t->size, w->fill, first * w->channels);
    if (end > first) memcpy(to + (size_t)first * tap, line + (x + first) * (int64_t)tap, (size_t)(end - first) * tap);
    if (taps > end && end >= first) ks_cpu_fill(to + (size_t)end * tap, t->size, w->fill, (taps - end) * w->channels);
}

static void put_taps(const task *t, const unsigned char *line, int64_t window, unsigned char *to)
{
    const ks_windows *w = &t->w;
    const size_t tap = (size_t)w->channels * t->size;
    if (w->x.dilation == 1 || w->x.size == 1) {
        put_run(t, line, place_of(&w->x, window, 0), to);
        return;
    }
    for (int64_t i = 0; i < w->x.size; i++, to += tap) {
        const int64_t x = place_of(&w->x, window, i);
        if (is_inside(&w->x, x))
            memcpy(to, line + x * (int64_t)tap, tap);
        else
            ks_cpu_fill(to, t->size, w->fill, w->channels);
    }
}

static void unfold_last(const task *t, const unsigned char *in)
{
    const ks_windows *w = &t->w;
    const size_t row = (size_t)(w->x.size * w->channels) * t->size, line = (size_t)(w->x.in * w->channels) * t->size;
    unsigned char *to = t->to;
    for (int64_t wy = 0; wy < w->y.out; wy++)
        for (int64_t wx = 0; wx < w->x.out; wx++)
            for (int64_t i = 0; i < w->y.size; i++, to += row) {
                const int64_t y = place_of(&w->y, wy, i);
                if (is_inside(&w->y, y))
                    put_taps(t, in + (size_t)y * line, wx, to);
                else
                    ks_cpu_fill(to, t->size, w->fill, w->x.size * w->channels);
            }
}

/* --- channels first -------------------------------------------------------------------------------------------------- */

/* columns[x][c] of a line of each of so many channels, which lie `apart` elements from one another. */
#define TURN(name, type)                                                                                               \
    static void turn_##name(const void *from, int64_t apart, int64_t channels, int64_t width, void *columns)           \
    {                                                                                                                  \
        enum { BLOCK = 32 };                                                                                           \
        for (int64_t first = 0; first < width; first += BLOCK) {                                                       \
            const int64_t end = least(first + BLOCK, width);                                                           \
            for (int64_t c = 0; c < channels; c++) {                                                                   \
                const type *line = (const type *)from + c * apart;                                                     \
                for (int64_t x = first; x < end; x++) ((type *)columns)[x * BAND + c] = line[x];                       \
            }                                                                                                          \
        }                                                                                                              \
    }
TURN(1, uint8_t)
TURN(2, uint16_t)
TURN(4, uint32_t)
TURN(8, uint64_t)

static void turn(const task *t, const void *from, int64_t channels, void *columns)
{
    const int64_t apart = t->w.y.in * t->w.x.in, width = t->w.x.in;
    switch (t->size) {
    case 1:
        turn_1(from, apart, channels, width, columns);
        break;
    case 2:
        turn_2(from, apart, channels, width, columns);
        break;
    case 4:
        turn_4(from, apart, channels, width, columns);
        break;
    default:
        turn_8(from, apart, channels, width, columns);
        break;
    }
}

/* A band of a window row: of each window one row of taps. columns: NULL where that row is outside. */
static void put_band(const task *t, const unsigned char *columns, int64_t channels, unsigned char *to)
{
    const ks_windows *w = &t->w;
    const size_t band = (size_t)channels * t->size, tap = (size_t)w->channels * t->size;
    for (int64_t wx = 0; wx < w->x.out; wx++, to += (size_t)t->window * t->size)
        for (int64_t i = 0; i < w->x.size; i++) {
            const int64_t x = place_of(&w->x, wx, i);
            unsigned char *const at = to + (size_t)i * tap;
            if (columns && is_inside(&w->x, x))
                memcpy(at, columns + (size_t)x * BAND * t->size, band);
            else
                ks_cpu_fill(at, t->size, w->fill, channels);
        }
}

/* Every row of taps that lies on line y, of every window row; each line is turned once. */
static void put_line(const task *t, int64_t y, const unsigned char *columns, int64_t first, int64_t channels)
{
    const ks_windows *w = &t->w;
    const int64_t across = w->x.size * w->channels;
    for (int64_t i = 0; i < w->y.size; i++) {
        const int64_t from = y + w->y.before - i * w->y.dilation, wy = from / w->y.stride;
        if (from < 0 || from % w->y.stride != 0 || wy >= w->y.out) continue;
        put_band(t, columns, channels, t->to + (size_t)(wy * w->x.out * t->window + i * across + first) * t->size);
    }
}

/* Rows of taps that lie on no line. */
static void put_outside(const task *t)
{
    const ks_windows *w = &t->w;
    for (int64_t wy = 0; wy < w->y.out; wy++)
        for (int64_t i = 0; i < w->y.size; i++)
            if (!is_inside(&w->y, place_of(&w->y, wy, i)))
                put_band(t, NULL, w->channels,
                         t->to + (size_t)(wy * w->x.out * t->window + i * w->x.size * w->channels) * t->size);
}

static void unfold_first(const task *t, const unsigned char *in, void *columns)
{
    const ks_windows *w = &t->w;
    for (int64_t first = 0; first < w->channels; first += BAND) {
        const int64_t channels = least(w->channels - first, BAND);
        const unsigned char *from = in + (size_t)(first * w->y.in * w->x.in) * t->size;
        for (int64_t y = 0; y < w->y.in; y++, from += (size_t)w->x.in * t->size) {
            turn(t, from, channels, columns);
            put_line(t, y, columns, first, channels);
        }
    }
    put_outside(t);
}

/* --- both ------------------------------------------------------------------------------------------------------------- */

static size_t columns_bytes(const ks_spec *spec)
{
    if (spec->out[0].size_bytes == 0) return 0;
    const ks_windows w = ks_windows_of(spec);
    return w.channels_first ? (size_t)w.x.in * BAND * ks_dtype_size(spec->in[0].dtype) + KS_ALIGNMENT : 0;
}

/* ks_cpu_fn */
static void window_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    if (spec->out[0].size_bytes == 0) return;
    task t = {.w = ks_windows_of(spec), .size = ks_dtype_size(spec->in[0].dtype), .to = out[0]};
    const ks_windows *w = &t.w;
    const size_t index = spec->in[0].size_bytes / (size_t)w->lead;
    void *columns = (void *)(((uintptr_t)scratch + KS_ALIGNMENT - 1) & ~(uintptr_t)(KS_ALIGNMENT - 1));
    t.window = w->y.size * w->x.size * w->channels;
    for (int64_t i = 0; i < w->lead; i++, t.to += spec->out[0].size_bytes / (size_t)w->lead) {
        if (w->channels_first)
            unfold_first(&t, (const unsigned char *)in[0] + (size_t)i * index, columns);
        else
            unfold_last(&t, (const unsigned char *)in[0] + (size_t)i * index);
    }
}

const ks_cpu_op ks_window_cpu = {.reference = window_reference, .scratch_bytes = columns_bytes};
