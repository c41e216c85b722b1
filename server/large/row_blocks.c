/* Which rows of a large request are one launch, and whether they are there. */
#include <string.h>

#include "large/large_parts.h"

static const size_t block_bytes = 2 << 20; /* in + out of a block, at least: other requests run between two blocks */

/* Rows: the indices of the first dimension that has more than one. *dim: which that is. Only INPUT0 is cut, behind all that
 * its rows need; the response is one output's rows. */
static int64_t rows_of(const ks_spec *spec, int *dim)
{
    const ks_tensor *x = &spec->in[0];
    if (!spec->op->rows || spec->outputs != 1 || x->fixed || x->offset + x->size_bytes != ks_spec_in_bytes(spec))
        return 0;
    const ks_rows rows = spec->op->rows(spec);
    if ((rows.cut & spec->given) != 1 || !(rows.out & 1)) return 0;
    for (int i = 0; i < rows.dims; i++) {
        *dim = i;
        if (spec->in[0].dims[i] != 1) return spec->in[0].dims[i];
    }
    return 0;
}

/* The least number of rows whose bytes are a multiple of KS_ALIGNMENT. */
static int64_t aligned_rows(size_t row_bytes)
{
    const size_t divisor = row_bytes & -row_bytes;
    return divisor >= KS_ALIGNMENT ? 1 : (int64_t)(KS_ALIGNMENT / divisor);
}

/* The same work on so many of its rows. */
static bool cut_spec(const ks_spec *whole, int dim, int64_t rows, ks_spec *out)
{
    ks_error ignored;
    ks_spec_copy(out, whole);
    memset(out->out, 0, sizeof out->out);
    out->in[0].dims[dim] = rows;
    return ks_tensor_measure(&out->in[0], out->op->inputs[0].name, &ignored) == KS_OK &&
           out->op->resolve(out, &ignored) == KS_OK;
}

/* Blocks of equal size, so that one plan serves them all. The last one ends with the last row; where that does not come
 * out, each block takes a few rows of the next one as well, which are then computed twice, to the same bits. false: not
 * worth it, or not possible. */
static bool cut_blocks(ks_large_request *request, const ks_spec *whole, size_t least, ks_spec *block)
{
    int dim = 0;
    const int64_t rows = rows_of(whole, &dim);
    if (rows < 2) return false;
    const size_t in_row = whole->in[0].size_bytes / (size_t)rows, out_row = whole->out[0].size_bytes / (size_t)rows;
    if (in_row == 0 || out_row == 0) return false;
    const int64_t in_step = aligned_rows(in_row), out_step = aligned_rows(out_row);
    const int64_t step = in_step > out_step ? in_step : out_step; /* powers of two */
    const int64_t stride = ((int64_t)(least / (in_row + out_row)) + step) / step * step;
    const int64_t taken = stride + rows % step;
    if (rows < 2 * taken || !cut_spec(whole, dim, taken, block)) return false;
    if (block->out[0].size_bytes != out_row * (size_t)taken) return false;
    request->blocks = (rows - taken + stride - 1) / stride + 1;
    request->block_in = in_row * (size_t)taken;
    request->block_out = out_row * (size_t)taken;
    request->stride_in = in_row * (size_t)stride;
    request->stride_out = out_row * (size_t)stride;
    return true;
}

/* The smallest blocks whose rows come out as they do in one launch; else all of it is one block. Plans that were tried in
 * vain stay in the cache, so that the next request of the shape finds them. */
ks_status ks_large_plan(ks_large_request *request, const ks_spec *spec, ks_error *error)
{
    ks_engine *engine = request->requests->engine;
    ks_error ignored;
    ks_spec block;
    ks_plan *whole, *part;
    const ks_status status = ks_engine_plan(engine, spec, &whole, error);
    if (status != KS_OK) return status;
    request->in_bytes = whole->in_bytes;
    request->out_bytes = whole->out_bytes;
    request->plan = whole;
    for (size_t least = block_bytes; cut_blocks(request, spec, least, &block); least *= 2) {
        if (ks_engine_plan(engine, &block, &part, &ignored) != KS_OK) break;
        if (part->rows_like != whole->rows_like) {
            ks_engine_plan_release(engine, &part);
            continue;
        }
        request->plan = part;
        request->whole = whole;
        return KS_OK;
    }
    request->blocks = 1;
    request->block_in = spec->in[0].size_bytes;
    request->block_out = spec->out[0].size_bytes;
    request->stride_in = request->stride_out = 0;
    return KS_OK;
}

/* Where block i starts, in strides or from the end. */
static size_t block_at(int64_t i, size_t stride, size_t block, size_t all)
{
    const size_t at = (size_t)i * stride;
    return at < all - block ? at : all - block;
}

static const ks_spec *spec_of(const ks_large_request *request)
{
    return request->whole ? &request->whole->spec : &request->plan->spec;
}

/* Inputs come in any order, each from its start; fixed ones are there. */
void ks_large_came(ks_large_request *request, size_t offset, size_t bytes)
{
    const ks_spec *spec = spec_of(request);
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        if (spec->in[i].fixed) continue;
        const size_t begin = spec->in[i].offset, end = begin + spec->in[i].size_bytes;
        const size_t from = offset > begin ? offset : begin, to = offset + bytes < end ? offset + bytes : end;
        if (from < to) request->came[i] += to - from;
    }
}

/* Whether so much of INPUT0 is there, and the other inputs are complete. */
static bool is_there(const ks_large_request *request, size_t rows_end)
{
    const ks_spec *spec = spec_of(request);
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i))
        if (!spec->in[i].fixed && request->came[i] < spec->in[i].size_bytes) return false;
    return spec->in[0].fixed || request->came[0] >= rows_end;
}

static void place_tensors(ks_large_request *request, size_t in, size_t out)
{
    const ks_spec *spec = spec_of(request);
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        request->places.in[i] = spec->in[i].offset;
    for (int i = 0; i < spec->outputs; i++) request->places.out[i] = spec->out[i].offset;
    request->places.in[0] += in;
    request->places.out[0] += out;
}

bool ks_large_next(ks_large_request *request, ks_job *job)
{
    if (request->state != KS_LARGE_OPEN || request->launched == request->blocks) return false;
    const ks_spec *spec = spec_of(request);
    const size_t in = block_at(request->launched, request->stride_in, request->block_in, spec->in[0].size_bytes);
    const size_t out = block_at(request->launched, request->stride_out, request->block_out, spec->out[0].size_bytes);
    if (!is_there(request, in + request->block_in)) return false;
    ks_slot *view = &request->view;
    *view = request->slot ? *request->slot : request->device_buffer;
    place_tensors(request, in, out);
    view->places = &request->places;
    if (request->whole) { /* no more of the sides than up to the block's end */
        view->in_cap = request->places.in[0] + request->block_in;
        view->out_cap = request->places.out[0] + request->block_out;
    }
    job->plan = request->plan;
    job->slot = view;
    return true;
}

void ks_large_launched(ks_large_request *request)
{
    request->launched++;
}

/* The plan document of a request is the one of all its rows: the blocks' time is a run of that. */
bool ks_large_done(ks_large_request *request, const ks_job *job)
{
    request->done++;
    request->kernel_ns = request->kernel_ns < 0 || job->kernel_ns < 0 ? -1 : request->kernel_ns + job->kernel_ns;
    if (!ks_large_is_done(request)) return false;
    if (request->whole && request->kernel_ns >= 0) {
        request->whole->timed_jobs++;
        request->whole->timed_ns += request->kernel_ns;
    }
    return true;
}

bool ks_large_is_done(const ks_large_request *request)
{
    return request->state == KS_LARGE_OPEN && request->done == request->blocks;
}
