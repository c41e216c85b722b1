/* Where an inference request's tensors lie: in a slot, in the slot queue, in a large request, in windows of a client's
 * shared memory.
 *
 * Owns       what job.slot, job.plan, wait, large request and windows of a record hold, from ks_infer_place on until
 *            ks_infer_release_memory.
 * Interface  infer_parts.h; ks_infer_waits of infer.h.
 * Limits     one slot, one plan, one large request and KS_WINDOWS windows of a record. What no slot holds is a large request; what finds no
 *            free slot waits in the slot queue, or takes an overflow slot of the engine's budget.
 * Threads    the shard's own. */
#include <string.h>

#include "request/infer_parts.h"

/* --- slots and large requests -------------------------------------------------------------------------------------------- */

static void give_slot(ks_infers *infers, ks_slot **slot)
{
    ks_engine_slot_release(infers->engine, slot);
    ks_slot_queue_freed(&infers->slot_queue);
}

/* ks_codec_write_fn */
static ks_status write_large(void *context, size_t offset, const char *bytes, size_t n, size_t *taken, ks_error *error)
{
    ks_infer *infer = context;
    (void)error; /* the large request has it */
    return ks_large_write(&infer->large, offset, bytes, n, taken);
}

/* ks_codec_write_fn: nothing is taken while there is no slot. */
static ks_status write_slot(void *context, size_t offset, const char *bytes, size_t n, size_t *taken, ks_error *error)
{
    ks_infer *infer = context;
    (void)error;
    *taken = infer->job.slot ? n : 0;
    if (infer->job.slot) memcpy(infer->job.slot->in + offset, bytes, n);
    return KS_OK;
}

/* ks_codec_place_fn */
ks_status ks_infer_place(void *context, size_t in_bytes, size_t out_bytes, size_t keep, ks_sides *sides,
                         ks_error *error)
{
    ks_infer *infer = context;
    ks_slot *old = infer->job.slot;
    const bool held_back = old == NULL && !infer->compressed && ks_codec_may_write_through(infer->codec);
    const ks_spec *spec = &ks_codec_request(infer->codec)->spec;
    if (held_back && spec->outputs == 1 &&
        ks_large_requests_takes(infer->infers->large_requests, in_bytes, out_bytes)) {
        *sides = (ks_sides){NULL, NULL};
        ks_codec_write_through(infer->codec, write_large);
        infer->is_large = true;
        return ks_large_begin(infer->infers->large_requests, &infer->large, spec, ks_infer_deadline(infer),
                              &infer->fault);
    }
    if (held_back && in_bytes > 0 && ks_slot_queue_holds(&infer->infers->slot_queue, in_bytes, out_bytes)) {
        *sides = (ks_sides){NULL, NULL};
        ks_codec_write_through(infer->codec, write_slot);
        ks_slot_queue_join(&infer->infers->slot_queue, &infer->wait, in_bytes, out_bytes);
        return KS_OK;
    }
    if (old == NULL || old->in_cap < in_bytes || old->out_cap < out_bytes) {
        ks_slot *slot = NULL;
        ks_status status = ks_engine_slot(infer->infers->engine, in_bytes, out_bytes, &slot, error);
        if (status != KS_OK) return status;
        if (old) {
            memcpy(slot->in, old->in, keep);
            give_slot(infer->infers, &old);
        }
        infer->job.slot = slot;
    }
    *sides = (ks_sides){infer->job.slot->in, infer->job.slot->out};
    return KS_OK;
}

bool ks_infer_waits(const ks_infer *infer)
{
    return infer->wait.waits || (infer->is_large && infer->large.pause != KS_PAUSE_NONE);
}

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* ks_codec_window_fn */
ks_status ks_infer_hold_window(void *context, int which, const ks_window_name *name, bool *device_copies,
                               ks_error *error)
{
    ks_infer *infer = context;
    ks_window *window = &infer->windows[which];
    const ks_status status =
        ks_window_hold(infer->infers->regions, name->region, name->offset, name->bytes, window, error);
    *device_copies = status == KS_OK && ks_window_device(window);
    return status;
}

ks_status ks_infer_take_windows(ks_infer *infer)
{
    const ks_infer_request *request = ks_codec_request(infer->codec);
    ks_slot *slot = infer->job.slot;
    for (int i = ks_next_input(&request->spec, -1); i >= 0; i = ks_next_input(&request->spec, i)) {
        const ks_tensor *in = &request->spec.in[i];
        ks_status status = KS_OK;
        if (ks_in(request->device_copies, i))
            slot->in_window[i] = ks_window_device(&infer->windows[i]);
        else if (ks_in(request->windows, i))
            status = ks_window_read(&infer->windows[i], slot->in + in->offset, in->size_bytes, &infer->fault);
        if (status == KS_OK && ks_in(request->windows & ~(unsigned)request->device_copies, i))
            status = ks_infer_request_check_bytes(request, i, slot->in + in->offset, in->size_bytes, &infer->fault);
        if (status != KS_OK) return status;
    }
    for (int i = 0; i < request->spec.outputs; i++)
        if (ks_in(request->device_copies, KS_WINDOW_OUT + i) && !ks_in(request->stored, i))
            slot->out_window[i] = ks_window_device(&infer->windows[KS_WINDOW_OUT + i]);
    slot->windows |= request->device_copies != 0;
    return KS_OK;
}

ks_status ks_infer_write_windows(ks_infer *infer)
{
    const ks_infer_request *request = ks_codec_request(infer->codec);
    const unsigned ours = (unsigned)(request->windows & ~request->device_copies) >> KS_WINDOW_OUT;
    for (int i = 0; ours >> i; i++) {
        if (!ks_in(ours, i)) continue;
        const ks_tensor *out = &request->spec.out[i];
        const ks_status status = ks_window_write(&infer->windows[KS_WINDOW_OUT + i], infer->job.slot->out + out->offset,
                                                 out->size_bytes, &infer->fault);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

static void drop_windows(ks_infer *infer)
{
    ks_slot *slot = infer->job.slot;
    if (slot && slot->windows) {
        memset(slot->in_window, 0, sizeof slot->in_window);
        memset(slot->out_window, 0, sizeof slot->out_window);
        slot->windows = false;
    }
    if (!ks_codec_request(infer->codec)->windows) return;
    for (int i = 0; i < KS_WINDOWS; i++)
        if (infer->windows[i].region) ks_window_release(infer->infers->regions, &infer->windows[i]);
}

/* --- back --------------------------------------------------------------------------------------------------------- */

void ks_infer_stop_waiting(ks_infer *infer)
{
    ks_slot_queue_leave(&infer->infers->slot_queue, &infer->wait);
    if (!infer->in_engine) ks_large_leave(&infer->large);
}

bool ks_infer_release_memory(ks_infer *infer)
{
    ks_infers *infers = infer->infers;
    ks_slot_queue_leave(&infers->slot_queue, &infer->wait);
    if (!ks_large_leave(&infer->large)) return false;
    if (infer->is_large) {
        infer->job.plan = NULL;
        infer->job.slot = NULL;
    }
    if (infer->job.plan) ks_engine_plan_release(infers->engine, &infer->job.plan);
    drop_windows(infer);
    ks_infer_drop_tensors(infer);
    if (infer->job.slot) give_slot(infers, &infer->job.slot);
    return true;
}
