/* What runs through an engine from inside, blocking: the known-answer test and the plans of --warm. */
#include "engine/engine_core.h"
#include "cpu/reference.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Submits and waits. Jobs of others that end meanwhile come from the next collect, as they would have. A device without
 * progress ends the wait: collect fails the job after stall_ns of turns. */
static ks_status run_alone(ks_engine *engine, ks_job *job, ks_error *error)
{
    if (error) error->status = KS_OK;
    job->fault = error;
    const ks_status status = ks_engine_submit(engine, job, error);
    if (status != KS_OK) return status;
    ks_job *others = NULL, **others_end = &others;
    bool back = false;
    while (!back) {
        ks_engine_launch(engine);
        for (ks_job *done = ks_engine_collect(engine), *next; done; done = next) {
            next = done->next;
            done->next = NULL;
            if (done == job) {
                back = true;
            } else {
                *others_end = done;
                others_end = &done->next;
            }
        }
        if (!back) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    while (others) {
        ks_job *other = others;
        others = other->next;
        ks_engine_finish(engine, other, other->status);
    }
    return job->status;
}

/* Holds what a job needs: its plan and a slot. */
static ks_status begin(ks_engine *engine, const ks_spec *spec, ks_job *job, ks_error *error)
{
    memset(job, 0, sizeof *job);
    ks_status status = ks_engine_plan(engine, spec, &job->plan, error);
    if (status != KS_OK) return status;
    job->rows = ks_job_rows(job->plan, spec);
    status = ks_engine_slot(engine, job->plan->in_bytes, job->plan->out_bytes, &job->slot, error);
    if (status != KS_OK) ks_engine_plan_release(engine, &job->plan);
    return status;
}

static void end(ks_engine *engine, ks_job *job)
{
    ks_engine_slot_release(engine, &job->slot);
    ks_engine_plan_release(engine, &job->plan);
}

/* --- warm --------------------------------------------------------------------------------------------------------- */

static void capture_all(ks_engine *engine, ks_plan *plan)
{
    if (!plan->graphs) return;
    const int lanes = plan->large ? 1 : ks_engine_plan_lanes(engine, plan);
    const int last = ks_bucket(plan->join_rows ? plan->join_rows : plan->batch_max);
    for (int bucket = 0; bucket <= last; bucket++)
        for (int lane = 0; lane < lanes; lane++) {
            if (engine->lane[lane].busy) continue;
            /* A plan without graphs still answers; it is tried again later. */
            if (!ks_graphs_make(engine, plan, lane, bucket)) return;
        }
}

/* Where zeros would be refused: FP32. */
static void fill_positive(const ks_spec *spec, unsigned char *side)
{
    const float one = 1;
    for (int t = ks_next_input(spec, -1); t >= 0; t = ks_next_input(spec, t)) {
        const ks_tensor *tensor = &spec->in[t];
        if (!spec->op->inputs[t].positive || tensor->fixed) continue;
        for (size_t at = 0; at < tensor->size_bytes; at += sizeof one)
            memcpy(side + tensor->offset + at, &one, sizeof one);
    }
}

ks_status ks_engine_warm(ks_engine *engine, const ks_spec *spec, ks_error *error)
{
    ks_job job;
    ks_status status = begin(engine, spec, &job, error);
    if (status != KS_OK) return status;
    memset(job.slot->in, 0, job.plan->in_bytes);
    fill_positive(&job.plan->spec, job.slot->in);
    status = run_alone(engine, &job, error);
    if (status == KS_OK) capture_all(engine, job.plan);
    if (status == KS_OK && engine->lost) {
        if (error) *error = engine->fault;
        status = KS_DEVICE;
    }
    end(engine, &job);
    return status;
}

/* --- known answers ------------------------------------------------------------------------------------------------ */

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                                    : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

/* Exact for the multiples of 1/64 in [-1, 1] that fill() writes. */
static uint16_t half_bits(double value)
{
    if (value == 0) return 0;
    int exponent;
    const double fraction = frexp(fabs(value), &exponent); /* [0.5, 1) */
    const int bits = (exponent + 14) << 10 | ((int)(fraction * 2048) & 1023);
    return (uint16_t)(bits | (value < 0 ? 0x8000 : 0));
}

#define INTEGERS(X)                                                                                                    \
    X(BOOL, uint8_t)                                                                                                   \
    X(UINT8, uint8_t)                                                                                                  \
    X(UINT16, uint16_t)                                                                                                \
    X(UINT32, uint32_t)                                                                                                \
    X(UINT64, uint64_t)                                                                                                \
    X(INT8, int8_t)                                                                                                    \
    X(INT16, int16_t)                                                                                                  \
    X(INT32, int32_t)                                                                                                  \
    X(INT64, int64_t)

static double element(ks_dtype dtype, const void *data, size_t i)
{
    switch (dtype) {
#define X(name, type)                                                                                                  \
    case KS_##name:                                                                                                    \
        return (double)((const type *)data)[i];
        INTEGERS(X)
#undef X
    case KS_FP16:
        return half_value(((const uint16_t *)data)[i]);
    case KS_BF16: {
        const uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    case KS_FP32:
        return (double)((const float *)data)[i];
    case KS_FP64:
        return ((const double *)data)[i];
    default:
        return 0;
    }
}

static void set_element(ks_dtype dtype, void *data, size_t i, int step)
{
    const double value = step / 64.0; /* exact in every floating-point type */
    switch (dtype) {
    case KS_BOOL:
        ((uint8_t *)data)[i] = step & 1;
        break;
    case KS_UINT8:
        ((uint8_t *)data)[i] = (uint8_t)(step + 64);
        break;
    case KS_UINT16:
        ((uint16_t *)data)[i] = (uint16_t)(step + 64);
        break;
    case KS_UINT32:
        ((uint32_t *)data)[i] = (uint32_t)(step + 64);
        break;
    case KS_UINT64:
        ((uint64_t *)data)[i] = (uint64_t)(step + 64);
        break;
    case KS_INT8:
        ((int8_t *)data)[i] = (int8_t)step;
        break;
    case KS_INT16:
        ((int16_t *)data)[i] = (int16_t)step;
        break;
    case KS_INT32:
        ((int32_t *)data)[i] = step;
        break;
    case KS_INT64:
        ((int64_t *)data)[i] = step;
        break;
    case KS_FP16:
        ((uint16_t *)data)[i] = half_bits(value);
        break;
    case KS_BF16: {
        const float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        break;
    }
    case KS_FP32:
        ((float *)data)[i] = (float)value;
        break;
    case KS_FP64:
        ((double *)data)[i] = value;
        break;
    default:
        break;
    }
}

/* The same numbers at every start, so that a wrong response can be looked into. */
static void fill(const ks_spec *spec, unsigned char *side)
{
    uint32_t state = 2463534242u;
    for (int t = ks_next_input(spec, -1); t >= 0; t = ks_next_input(spec, t)) {
        const ks_tensor *tensor = &spec->in[t];
        const size_t count = (size_t)ks_tensor_count(tensor);
        for (size_t i = 0; i < count; i++) {
            state ^= state << 13, state ^= state >> 17, state ^= state << 5;
            const int step = (int)(state >> 8) % 129 - 64;
            set_element(tensor->dtype, side + tensor->offset, i, spec->op->inputs[t].positive ? 1 + abs(step) : step);
        }
    }
}

/* Of the largest value as of each one: sums that cancel are small beside what was added. */
static double tolerance(ks_dtype dtype)
{
    if (ks_dtype_kind(dtype) != KS_KIND_FLOAT) return 0;
    return dtype == KS_BF16 ? 8e-3 : dtype == KS_FP16 ? 2e-3 : 1e-3;
}

static ks_status compare(const ks_spec *spec, const ks_tensor *out, const void *got, const void *wanted,
                         ks_error *error)
{
    const size_t count = (size_t)ks_tensor_count(out);
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(element(out->dtype, wanted, i)));
    const double allowed = tolerance(out->dtype) * largest;
    for (size_t i = 0; i < count; i++) {
        const double a = element(out->dtype, got, i), b = element(out->dtype, wanted, i);
        if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= allowed) continue;
        return ks_fail(error, KS_DEVICE,
                       "%s gives %.9g for element %zu, and not %.9g: the difference %.3g is above %.3g", spec->op->name,
                       a, i, b, fabs(a - b), allowed);
    }
    return KS_OK;
}

static ks_status compare_with_reference(const ks_spec *spec, const ks_slot *slot, ks_error *error)
{
    const size_t scratch_bytes = ks_cpu_scratch_bytes(spec);
    unsigned char *side = aligned_alloc(KS_ALIGNMENT, ks_align(ks_spec_out_bytes(spec) + 1));
    void *scratch = aligned_alloc(KS_ALIGNMENT, ks_align(scratch_bytes + 1));
    ks_status status = KS_OK;
    if (side && scratch) {
        const void *in[KS_INPUTS_MAX] = {NULL};
        for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) in[i] = slot->in + spec->in[i].offset;
        void *out[KS_OUTPUTS_MAX] = {NULL};
        for (int i = 0; i < spec->outputs; i++) out[i] = side + spec->out[i].offset;
        ks_cpu_reference(spec, in, out, scratch);
        for (int i = 0; i < spec->outputs && status == KS_OK; i++)
            status = compare(spec, &spec->out[i], slot->out + spec->out[i].offset, out[i], error);
    } else {
        status = ks_fail(error, KS_MEMORY, "no memory for the known answer of %s", spec->op->name);
    }
    free(side);
    free(scratch);
    return status;
}

static ks_status check_op(ks_engine *engine, const ks_op *op, ks_error *error)
{
    ks_spec spec;
    ks_spec_init(&spec, op);
    op->sample(&spec);
    ks_status status = op->resolve(&spec, error);
    if (status != KS_OK) return status;
    ks_spec_layout(&spec);
    ks_job job;
    status = begin(engine, &spec, &job, error);
    if (status != KS_OK) return status;
    fill(&spec, job.slot->in);
    /* A response left from before must not pass for this one's. */
    memset(job.slot->out, 0xA5, job.plan->out_bytes);
    status = run_alone(engine, &job, error);
    if (status == KS_OK) status = compare_with_reference(&spec, job.slot, error);
    end(engine, &job);
    return status;
}

ks_status ks_engine_check(ks_engine *engine, ks_error *error)
{
    for (const ks_op *const *op = ks_ops; *op; op++) {
        const ks_status status = check_op(engine, *op, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}
