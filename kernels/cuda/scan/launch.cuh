/* The launches of scan for one operation on one source. */
#ifndef KS_SCAN_LAUNCH_CUH
#define KS_SCAN_LAUNCH_CUH

#include "cuda/scan/columns.cuh"
#include "cuda/scan/plan.h"
#include "cuda/scan/rows.cuh"
#include "cuda/scan/tiles.cuh"

/* Of longer chains launches one behind the other, each of which leaves the chains' states to the next. */
template <class Op>
static cudaError_t scan_go_block(const scan_launch &go)
{
    const dim3 grid((unsigned)go.c.grid, (unsigned)go.bucket);
    scan_shape s = go.s;
    cudaError_t status = cudaSuccess;
    for (int64_t tile = 0; tile < go.tiles && status == cudaSuccess; tile += go.c.tiles) {
        s.first_tile = tile;
        s.tiles = (int32_t)(go.tiles - tile < go.c.tiles ? go.tiles - tile : go.c.tiles);
        s.items = (uint32_t)(s.chains * s.tiles);
        s.one_each = s.carries && s.items == (uint32_t)go.c.grid;
        s.begins = tile == 0;
        s.continues = tile + s.tiles < go.tiles;
        s.from = tile / go.c.tiles % 2 ? go.s.from : go.s.to;
        s.to = tile / go.c.tiles % 2 ? go.s.to : go.s.from;
        status = ks_launch(scan_block<Op>, grid, SCAN_THREADS, go.shared_bytes, false, go.stream, go.site, s);
    }
    return status;
}

template <class Op>
static cudaError_t scan_go_as(const scan_launch &go)
{
    const dim3 grid((unsigned)go.c.grid, (unsigned)go.bucket);
    if (go.c.kind == SCAN_BLOCK) return scan_go_block<Op>(go);
    if constexpr (scan_has_columns<Op>())
        if (go.c.kind == SCAN_COLUMN)
            return ks_launch(scan_column<Op>, grid, go.c.threads, 0, false, go.stream, go.site, go.s);
    if constexpr (scan_has_rows<Op>())
        if (go.c.kind == SCAN_ROW)
            return ks_launch(scan_row<Op>, grid, go.c.threads, go.shared_bytes, go.c.carries, go.stream, go.site, go.s);
    if (go.c.kind != SCAN_WARP) return cudaErrorInvalidValue;
    return ks_launch(scan_warp<Op>, grid, SCAN_THREADS, go.shared_bytes, false, go.stream, go.site, go.s);
}

template <template <class> class Op>
static cudaError_t scan_go_floats(const scan_launch &go)
{
    switch (go.dtype) {
    case KS_FP16:
        return scan_go_as<Op<scan_floats<__half>>>(go);
    case KS_BF16:
        return scan_go_as<Op<scan_floats<__nv_bfloat16>>>(go);
    case KS_FP32:
        return scan_go_as<Op<scan_floats<float>>>(go);
    default:
        return scan_go_as<Op<scan_floats<double>>>(go);
    }
}

#endif
