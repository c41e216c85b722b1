/* A compatibility model's request: the scanner checks its JSON and leaves all of it to the tree, numbers with their own
 * text and strings with U+0000 as C0 80 (scan.h). */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "api/compat_parts.h"
#include "base/number/number.h"
#include "codec/json_tree.h"

const char *const ks_compat_inputs[KS_COMPAT_TENSORS] = {"INPUT0", "INPUT1"};
const char *const ks_compat_outputs[KS_COMPAT_TENSORS] = {"OUTPUT0", "OUTPUT1"};

ks_status ks_compat_no_memory(ks_error *error)
{
    return ks_fail(error, KS_MEMORY, "no memory for the request");
}

enum { JSON_MAX = 1 << 20, DEPTH_MAX = KS_SCAN_DATA_DEPTH };

static ks_status bad_field(const char *field, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Unable to parse '%s': it is missing or of another type", field);
}

static ks_quote quoted(const char *text)
{
    return ks_quoted(text, strlen(text));
}

/* The bytes that a text of the tree stands for, to out, or only counted where that is NULL; returns how many. */
static size_t decode(const char *text, char *out)
{
    size_t n = 0;
    for (const char *p = text; *p; p++, n++) {
        const bool zero = (unsigned char)*p == 0xC0;
        if (out) out[n] = zero ? 0 : *p;
        p += zero;
    }
    return n;
}

static ks_status read_shape(const ks_compat_job *job, const ks_json *shape, ks_compat_tensor *out, ks_error *error)
{
    const int rank = job->compat->max_batch > 0 ? 2 : 1;
    if (!ks_json_is_list(shape)) return bad_field("shape", error);
    out->count = 1;
    for (const ks_json *item = ks_json_first(shape); item; item = ks_json_next(item)) {
        uint64_t dim;
        if (!ks_json_read_unsigned(item, &dim))
            return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': a dimension is no number");
        if (out->rank == rank || dim > KS_COMPAT_BODY_MAX)
            return ks_fail(error, KS_SHAPE, "the shape does not fit the model");
        out->dims[out->rank++] = (int64_t)dim;
        out->count *= (size_t)dim;
    }
    if (out->rank != rank || (job->compat->dim >= 0 && out->dims[rank - 1] != job->compat->dim) ||
        out->count > KS_COMPAT_BODY_MAX)
        return ks_fail(error, KS_SHAPE, "the shape does not fit the model");
    if (rank == 2 && out->dims[0] > job->compat->max_batch)
        return ks_fail(error, KS_SHAPE, "inference request batch-size must be <= %d for '%s'", job->compat->max_batch,
                       job->model->name);
    return KS_OK;
}

static ks_status add_element(const ks_compat_job *job, const ks_json *item, ks_text *out, ks_error *error)
{
    const ks_dtype dtype = job->compat->dtype;
    if (dtype == KS_BYTES && ks_json_is_text(item)) {
        const uint32_t length = (uint32_t)decode(ks_json_text(item), NULL);
        ks_text_add(out, (const char *)&length, sizeof length);
        char *const room = ks_text_room(out, length);
        if (room) out->length += decode(ks_json_text(item), room);
        return KS_OK;
    }
    if (dtype == KS_BYTES || !ks_json_is_number(item))
        return ks_fail(error, KS_FIELD, "Unable to parse 'data': an element is no %s",
                       dtype == KS_BYTES ? "string" : "number");
    char element[sizeof(double)];
    const char *const text = ks_json_text(item);
    if (ks_number_read(text, strlen(text), dtype, element) != KS_NUMBER_OK)
        return ks_fail(error, KS_RANGE, "Unable to parse 'data': %s is outside the range of %s", quoted(text).text,
                       ks_dtype_name(dtype));
    ks_text_add(out, element, ks_dtype_size(dtype));
    return KS_OK;
}

/* Nested lists, in the order of their leaves. */
static ks_status read_data(const ks_compat_job *job, const ks_json *data, ks_compat_tensor *out, ks_error *error)
{
    const ks_json *at[DEPTH_MAX];
    size_t count = 0;
    int depth = 0;
    at[0] = ks_json_first(data);
    while (depth >= 0) {
        const ks_json *item = at[depth];
        if (!item) {
            depth--;
            continue;
        }
        at[depth] = ks_json_next(item);
        if (ks_json_is_list(item)) {
            assert(depth + 1 < DEPTH_MAX); /* the scanner has counted them */
            depth++;
            at[depth] = ks_json_first(item);
            continue;
        }
        const ks_status status = add_element(job, item, &out->bytes, error);
        if (status != KS_OK) return status;
        count++;
    }
    if (count == out->count) return KS_OK;
    return ks_fail(error, KS_COUNT, "Failed to parse 'data' field: shape does not match true shape");
}

static ks_status read_blob(ks_compat_job *job, const ks_json *size, ks_compat_tensor *out, ks_error *error)
{
    uint64_t bytes;
    if (!ks_json_read_unsigned(size, &bytes)) return bad_field("binary_data_size", error);
    if (bytes > job->body.length - job->taken)
        return ks_fail(error, KS_BINARY_SIZE,
                       "unexpected size for an input, expecting %" PRIu64 " additional bytes for model '%s'",
                       bytes - (job->body.length - job->taken), job->model->name);
    ks_text_add(&out->bytes, job->body.bytes + job->taken, (size_t)bytes);
    job->taken += (size_t)bytes;
    return KS_OK;
}

/* A window without a name of its own for the device: these models work on the host. */
static ks_status hold(ks_regions *regions, const ks_json *parameters, ks_window *out, ks_error *error)
{
    const ks_json *region = ks_json_member(parameters, "shared_memory_region");
    const ks_json *offset = ks_json_member(parameters, "shared_memory_offset");
    uint64_t at = 0, bytes = 0;
    if (!regions)
        return ks_fail(error, KS_UNSUPPORTED,
                       "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
    if (!ks_json_is_text(region) || (offset && !ks_json_read_unsigned(offset, &at)) ||
        !ks_json_read_unsigned(ks_json_member(parameters, "shared_memory_byte_size"), &bytes))
        return bad_field("shared_memory_byte_size", error);
    return ks_window_hold(regions, ks_json_text(region), at, bytes, out, error);
}

static ks_status read_shared(ks_regions *regions, const ks_json *parameters, ks_compat_tensor *out, ks_error *error)
{
    ks_window window = {0};
    ks_status status = hold(regions, parameters, &window, error);
    if (status != KS_OK) return status;
    char *const room = ks_text_room(&out->bytes, window.bytes);
    status = room ? ks_window_read(&window, room, window.bytes, error) : ks_compat_no_memory(error);
    if (status == KS_OK) out->bytes.length += window.bytes;
    ks_window_release(regions, &window);
    return status;
}

/* Whether the bytes are as many elements as the shape says. */
static ks_status check_bytes(const ks_compat_job *job, const char *name, const ks_compat_tensor *in, ks_error *error)
{
    size_t count = 0, at = 0;
    if (in->bytes.broken) return ks_compat_no_memory(error);
    if (job->compat->dtype != KS_BYTES) {
        const size_t expected = in->count * ks_dtype_size(job->compat->dtype);
        if (in->bytes.length == expected) return KS_OK;
        return ks_fail(error, KS_BINARY_SIZE,
                       "input byte size mismatch for input '%s' for model '%s'. Expected %zu, got %zu", name,
                       job->model->name, expected, in->bytes.length);
    }
    while (in->bytes.length - at >= sizeof(uint32_t)) {
        uint32_t length;
        memcpy(&length, in->bytes.bytes + at, sizeof length);
        at += sizeof length;
        if (length > in->bytes.length - at) break;
        at += length;
        count++;
    }
    if (at != in->bytes.length)
        return ks_fail(error, KS_BINARY_SIZE, "incomplete string length indicator for inference input '%s'", name);
    if (count == in->count) return KS_OK;
    return ks_fail(error, KS_BINARY_SIZE,
                   "expected %zu string elements for inference input '%s' for model '%s', got %zu", in->count, name,
                   job->model->name, count);
}

static int index_of(const char *const *names, int count, const char *name)
{
    assert(count <= KS_COMPAT_TENSORS);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static ks_status read_input(ks_compat_job *job, ks_regions *regions, const ks_json *input, ks_error *error)
{
    const ks_json *name = ks_json_member(input, "name");
    const ks_json *datatype = ks_json_member(input, "datatype");
    const ks_json *parameters = ks_json_member(input, "parameters");
    const ks_json *data = ks_json_member(input, "data");
    const ks_json *size = ks_json_member(parameters, "binary_data_size");
    const ks_json *region = ks_json_member(parameters, "shared_memory_region");
    if (!ks_json_is_text(name)) return bad_field("name", error);
    if (!ks_json_is_text(datatype)) return bad_field("datatype", error);
    const int which = index_of(ks_compat_inputs, job->compat->tensors, ks_json_text(name));
    if (which < 0 || job->in[which].present)
        return ks_fail(error, KS_NAME,
                       which < 0 ? "unexpected inference input '%s' for model '%s'"
                                 : "input '%s' already exists in request for model '%s'",
                       quoted(ks_json_text(name)).text, job->model->name);
    if (strcmp(ks_json_text(datatype), ks_dtype_name(job->compat->dtype)) != 0)
        return ks_fail(error, KS_DATATYPE, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                       ks_compat_inputs[which], quoted(ks_json_text(datatype)).text, job->model->name,
                       ks_dtype_name(job->compat->dtype));
    ks_compat_tensor *in = &job->in[which];
    in->present = true;
    ks_status status = read_shape(job, ks_json_member(input, "shape"), in, error);
    if (status != KS_OK) return status;
    if (ks_json_is_list(data) + (size != NULL) + (region != NULL) != 1)
        return ks_fail(error, KS_COUNT,
                       "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
                       "'shared_memory_region' in 'parameters'.");
    status = size     ? read_blob(job, size, in, error)
             : region ? read_shared(regions, parameters, in, error)
                      : read_data(job, data, in, error);
    return status == KS_OK ? check_bytes(job, ks_compat_inputs[which], in, error) : status;
}

static ks_status read_outputs(ks_compat_job *job, ks_regions *regions, const ks_json *top, ks_error *error)
{
    const ks_json *parameters = ks_json_member(top, "parameters");
    const bool all_binary = ks_json_is_true(ks_json_member(parameters, "binary_data_output"));
    int count = 0;
    for (const ks_json *output = ks_json_first(ks_json_member(top, "outputs")); output; output = ks_json_next(output)) {
        const ks_json *name = ks_json_member(output, "name");
        parameters = ks_json_member(output, "parameters");
        if (!ks_json_is_text(name)) return bad_field("name", error);
        const int which = index_of(ks_compat_outputs, job->compat->tensors, ks_json_text(name));
        if (which < 0 || job->wish[which].wanted)
            return ks_fail(error, KS_NAME,
                           which < 0 ? "unexpected inference output '%s' for model '%s'"
                                     : "output '%s' already exists in request for model '%s'",
                           quoted(ks_json_text(name)).text, job->model->name);
        ks_compat_wish *wish = &job->wish[which];
        wish->wanted = true;
        wish->binary = ks_json_is_true(ks_json_member(parameters, "binary_data"));
        count++;
        if (ks_json_member(parameters, "classification"))
            return ks_fail(error, KS_PARAMETER, "model '%s' has no classes", job->model->name);
        if (!ks_json_member(parameters, "shared_memory_region")) continue;
        const ks_status status = hold(regions, parameters, &wish->window, error);
        if (status != KS_OK) return status;
    }
    for (int i = 0; i < job->compat->tensors && count == 0; i++)
        job->wish[i] = (ks_compat_wish){.wanted = true, .binary = all_binary};
    return KS_OK;
}

static ks_status read_top(ks_compat_job *job, ks_regions *regions, const ks_json *top, ks_error *error)
{
    const ks_json *inputs = ks_json_member(top, "inputs");
    const ks_json *id = ks_json_member(top, "id");
    int count = 0;
    if (id && !ks_json_is_text(id)) return bad_field("id", error);
    if (id) job->id_length = decode(ks_json_text(id), NULL);
    if (job->id_length > sizeof job->id) return bad_field("id", error);
    if (id) decode(ks_json_text(id), job->id);
    if (!ks_json_is_list(inputs)) return bad_field("inputs", error);
    for (const ks_json *input = ks_json_first(inputs); input; input = ks_json_next(input)) {
        const ks_status status = read_input(job, regions, input, error);
        if (status != KS_OK) return status;
        count++;
    }
    if (count < job->compat->tensors)
        return ks_fail(error, KS_NAME, "expected %d inputs but got %d inputs for model '%s'", job->compat->tensors,
                       count, job->model->name);
    if (job->taken < job->body.length)
        return ks_fail(error, KS_BINARY_SIZE, "unexpected additional input data for model '%s'", job->model->name);
    if (count == 2 && memcmp(job->in[0].dims, job->in[1].dims, sizeof job->in[0].dims) != 0)
        return ks_fail(error, KS_SHAPE, "the inputs of '%s' differ in shape", job->model->name);
    return read_outputs(job, regions, top, error);
}

static ks_status read_json(ks_compat_job *job, ks_regions *regions, ks_error *error)
{
    const ks_scan_limits limits = {
        .json_head_max = 4 * JSON_MAX, .string_max = JSON_MAX, .members_max = 64, .json_max = JSON_MAX};
    ks_scan *scan = NULL;
    ks_status status = ks_scan_begin(&limits, NULL, NULL, &scan, error);
    if (status == KS_OK) status = ks_scan_feed(scan, job->body.bytes ? job->body.bytes : "", job->taken, error);
    if (status == KS_OK) status = ks_scan_end(scan, error);
    if (status == KS_OK) {
        ks_json *top;
        status = ks_json_open(scan, "the request", &top, error);
        if (status == KS_OK) status = read_top(job, regions, top, error);
        ks_json_close(&top);
    }
    ks_scan_fini(&scan);
    return status;
}

/* The whole body is the one input's data, and outputs are binary. */
static ks_status read_raw(ks_compat_job *job, ks_error *error)
{
    const ks_compat *compat = job->compat;
    ks_compat_tensor *in = &job->in[0];
    if (compat->tensors != 1)
        return ks_fail(error, KS_NAME,
                       "Raw request must only have 1 input (found 1) to be deduced but got %d inputs in '%s' model "
                       "configuration",
                       compat->tensors, job->model->name);
    if (compat->dtype == KS_BYTES)
        return ks_fail(error, KS_SHAPE, "For BYTE datatype raw input 'INPUT0', the model must have input shape [1]");
    in->count = job->body.length / ks_dtype_size(compat->dtype);
    in->rank = compat->max_batch > 0 ? 2 : 1;
    in->dims[0] = 1;
    in->dims[in->rank - 1] = (int64_t)in->count;
    ks_text_add(&in->bytes, job->body.bytes, job->body.length);
    job->wish[0] = (ks_compat_wish){.wanted = true, .binary = true};
    return check_bytes(job, ks_compat_inputs[0], in, error);
}

ks_status ks_compat_read(ks_compat_job *job, ks_regions *regions, ks_error *error)
{
    if (job->json_length == 0) return read_raw(job, error);
    if (job->json_length > (int64_t)job->body.length)
        return ks_fail(error, KS_HEADER_LENGTH, "inference header size should be in range (0, %zu), got: %" PRId64,
                       job->body.length, job->json_length);
    job->taken = job->json_length > 0 ? (size_t)job->json_length : job->body.length;
    if (job->taken > JSON_MAX)
        return ks_fail(
            error, KS_BODY_SIZE,
            "request JSON size of %zu bytes exceeds the maximum allowed input size of %d bytes for this model",
            job->taken, JSON_MAX);
    return read_json(job, regions, error);
}
