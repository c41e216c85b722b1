/* Resident tensors that a request uses, and those that its outputs become.
 *
 * Owns       contents of a record: held inputs from the moment that its words name them, memory for stored outputs from before
 *            the launch until they are published; both until ks_infer_drop_tensors.
 * Interface  infer_parts.h.
 * Threads    the shard's own; the store has a lock of its own, which a look-up of a known name does not take. */
#include <stdio.h>
#include <string.h>

#include "request/infer_parts.h"

void ks_infer_set_tenant(ks_infer *infer, const ks_tenant *tenant)
{
    infer->tenant = tenant ? *tenant : (ks_tenant){.is_operator = true};
    infer->tenant_name[0] = '\0';
    if (tenant && tenant->name[0]) snprintf(infer->tenant_name, sizeof infer->tenant_name, "%s", tenant->name);
    infer->tenant.name = infer->tenant_name;
}

/* ks_codec_tensor_fn */
ks_status ks_infer_hold_tensor(void *context, int input, const char *name, const ks_tensor **out, ks_error *error)
{
    ks_infer *infer = context;
    ks_reader *reader = infer->infers->reader;
    ks_content **held = &infer->held[input];
    if (ks_in(infer->holds, input)) ks_reader_release(reader, held);
    infer->holds &= ~(1u << input);
    const ks_status status = ks_reader_hold(reader, &infer->tenant, name, strlen(name), held, error);
    if (status != KS_OK) return status;
    infer->holds |= 1u << input;
    *out = ks_content_tensor(*held, infer->model->op, input);
    return KS_OK;
}

/* ks_codec_tensor_fn, of a plan that is asked for: context is the shard's ks_infers. */
ks_status ks_infers_hold_asked(void *context, int input, const char *name, const ks_tensor **out, ks_error *error)
{
    ks_infers *infers = context;
    ks_content **held = &infers->asked_held[input];
    const ks_status status = ks_reader_hold(infers->reader, &infers->asked_tenant, name, strlen(name), held, error);
    if (status == KS_OK) *out = ks_content_tensor(*held, infers->asked_op, input);
    return status;
}

void ks_infers_drop_asked(ks_infers *infers)
{
    for (int i = 0; i < KS_INPUTS_MAX; i++)
        if (infers->asked_held[i]) ks_reader_release(infers->reader, &infers->asked_held[i]);
}

static ks_put put_of(const ks_infer *infer, int output)
{
    const ks_infer_request *request = ks_codec_request(infer->codec);
    return (ks_put){.tenant = &infer->tenant,
                    .name = request->tensor[KS_WINDOW_OUT + output],
                    .ttl_s = request->ttl_s[output],
                    .is_placed = infer->one_of_several};
}

static ks_status reserve(ks_infer *infer, int output)
{
    ks_store *store = infer->infers->store;
    const ks_put put = put_of(infer, output);
    char what[KS_NAMED_MAX + sizeof "tensor ''"];
    if (!infer->may_store)
        return ks_fail(&infer->fault, KS_FORBIDDEN,
                       "this token has no right 'tensors' (the token file's rights=): its outputs cannot stay here");
    if (put.ttl_s == 0 && !infer->tenant.is_operator)
        return ks_fail(&infer->fault, KS_PARAMETER, "ttl=0, for ever, is for operators' tokens");
    snprintf(what, sizeof what, "tensor '%s'", put.name);
    ks_status status = ks_tensor_name_check(put.name, strlen(put.name), &infer->fault);
    if (status == KS_OK) status = ks_store_check(store, &put, &infer->fault);
    if (status != KS_OK) return status;
    return ks_store_reserve(store, &infer->tenant, what, &ks_codec_request(infer->codec)->spec.out[output],
                            &infer->stored[output], &infer->fault);
}

ks_status ks_infer_reserve_outputs(ks_infer *infer)
{
    const ks_infer_request *request = ks_codec_request(infer->codec);
    ks_slot *slot = infer->job.slot;
    for (unsigned left = request->stored; left; left &= left - 1) {
        const int output = __builtin_ctz(left);
        const ks_status status = reserve(infer, output);
        if (status != KS_OK) return status;
        slot->out_window[output] = infer->stored[output]->memory.out_device;
        slot->windows = true;
    }
    return KS_OK;
}

ks_status ks_infer_publish_outputs(ks_infer *infer)
{
    for (unsigned left = ks_codec_request(infer->codec)->stored; left; left &= left - 1) {
        const int output = __builtin_ctz(left);
        const ks_put put = put_of(infer, output);
        ks_put_outcome outcome;
        ks_tensor_entry entry;
        ks_content_label(infer->stored[output]);
        const ks_status status = ks_store_publish_take(infer->infers->store, &put, &infer->stored[output], 1, &outcome,
                                                       &entry, &infer->fault);
        infer->stored[output] = NULL;
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

void ks_infer_drop_tensors(ks_infer *infer)
{
    for (; infer->holds; infer->holds &= infer->holds - 1)
        ks_reader_release(infer->infers->reader, &infer->held[__builtin_ctz(infer->holds)]);
    for (unsigned left = ks_codec_request(infer->codec)->stored; left; left &= left - 1) {
        ks_content **stored = &infer->stored[__builtin_ctz(left)];
        if (*stored) ks_content_release(stored);
    }
}
