#include "compat.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inflate.h"
#include "number.h"

enum { BODY_MAX = 16 << 20, JSON_MAX = 1 << 20, DEPTH_MAX = 16, TENSORS = 2, NUMBER_MAX = 24 };

static const char *const input_names[TENSORS] = {"INPUT0", "INPUT1"};
static const char *const output_names[TENSORS] = {"OUTPUT0", "OUTPUT1"};

/* Elements of an input or an output: bytes as on the wire. */
typedef struct compat_tensor {
    bool present;
    int rank;
    int64_t dims[2];
    size_t count;
    ks_text bytes;
} compat_tensor;

typedef struct compat_wish {
    bool wanted, binary;
    ks_window window;
} compat_wish;

struct ks_compat_job {
    const ks_model *model;
    const ks_compat *compat;
    int64_t json_length; /* -1: the whole body */
    ks_inflate *inflate;
    ks_text body;
    size_t taken; /* of the body, by JSON and blobs */
    compat_tensor in[TENSORS], out[TENSORS];
    compat_wish wish[TENSORS];
    char id[1025];
};

static ks_status no_memory(ks_error *error)
{
    return ks_fail(error, KS_MEMORY, "no memory for the request");
}

static ks_status bad_field(const char *field, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Unable to parse '%s': it is missing or of another type", field);
}

static ks_quote quoted(const char *text)
{
    return ks_quoted(text, strlen(text));
}

ks_status ks_compat_begin(const ks_model *model, const char *header_length, ks_body_encoding encoding,
                          ks_compat_job **out, ks_error *error)
{
    int64_t json_length = -1;
    if (header_length && (*header_length == '-' ||
                          ks_number_read(header_length, strlen(header_length), KS_INT64, &json_length) != KS_NUMBER_OK))
        return ks_fail(error, KS_HEADER_LENGTH, "Unable to parse Inference-Header-Content-Length, got: %s",
                       quoted(header_length).text);
    ks_compat_job *job = calloc(1, sizeof *job);
    if (!job) return no_memory(error);
    job->model = model;
    job->compat = model->compat;
    job->json_length = json_length;
    ks_text_init(&job->body, BODY_MAX);
    for (int i = 0; i < TENSORS; i++) {
        ks_text_init(&job->in[i].bytes, BODY_MAX);
        ks_text_init(&job->out[i].bytes, BODY_MAX);
    }
    ks_status status = KS_OK;
    if (encoding != KS_BODY_PLAIN) status = ks_inflate_begin(BODY_MAX, NULL, &job->inflate, error);
    if (status != KS_OK) ks_compat_fini(&job);
    *out = job;
    return status;
}

/* ks_inflate_fn */
static ks_status collect(void *context, const char *bytes, size_t *n, ks_error *error)
{
    ks_compat_job *job = context;
    if (*n > BODY_MAX - job->body.length)
        return ks_fail(error, KS_BODY_SIZE, "a body for '%s' has at most %d bytes", job->model->name, BODY_MAX);
    ks_text_add(&job->body, bytes, *n);
    return job->body.broken ? no_memory(error) : KS_OK;
}

ks_status ks_compat_feed(ks_compat_job *job, const char *bytes, size_t n, ks_error *error)
{
    return job->inflate ? ks_inflate_feed(job->inflate, bytes, &n, collect, job, error)
                        : collect(job, bytes, &n, error);
}

void ks_compat_fini(ks_compat_job **pointer)
{
    ks_compat_job *job = *pointer;
    *pointer = NULL;
    if (!job) return;
    for (int i = 0; i < TENSORS; i++) {
        ks_text_fini(&job->in[i].bytes);
        ks_text_fini(&job->out[i].bytes);
    }
    ks_inflate_fini(&job->inflate);
    ks_text_fini(&job->body);
    free(job);
}

/* --- the request ---------------------------------------------------------------------------------------------------- */

static bool read_size(const cJSON *item, uint64_t *out)
{
    /* Sizes and offsets of these models are far below 2^53. */
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > 1e15) return false;
    *out = (uint64_t)item->valuedouble;
    return (double)*out == item->valuedouble;
}

static ks_status read_shape(const ks_compat_job *job, const cJSON *shape, compat_tensor *out, ks_error *error)
{
    const int rank = job->compat->max_batch > 0 ? 2 : 1;
    const cJSON *item;
    if (!cJSON_IsArray(shape)) return bad_field("shape", error);
    out->count = 1;
    cJSON_ArrayForEach(item, shape)
    {
        uint64_t dim;
        if (!read_size(item, &dim))
            return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': a dimension is no number");
        if (out->rank == rank || dim > BODY_MAX) return ks_fail(error, KS_SHAPE, "the shape does not fit the model");
        out->dims[out->rank++] = (int64_t)dim;
        out->count *= (size_t)dim;
    }
    if (out->rank != rank || (job->compat->dim >= 0 && out->dims[rank - 1] != job->compat->dim) ||
        out->count > BODY_MAX)
        return ks_fail(error, KS_SHAPE, "the shape does not fit the model");
    if (rank == 2 && out->dims[0] > job->compat->max_batch)
        return ks_fail(error, KS_SHAPE, "inference request batch-size must be <= %d for '%s'", job->compat->max_batch,
                       job->model->name);
    return KS_OK;
}

static bool add_element(const ks_compat_job *job, const cJSON *item, ks_text *out)
{
    if (job->compat->dtype == KS_BYTES) {
        if (!cJSON_IsString(item)) return false;
        const uint32_t length = (uint32_t)strlen(item->valuestring);
        ks_text_add(out, (const char *)&length, sizeof length);
        ks_text_add(out, item->valuestring, length);
        return true;
    }
    if (!cJSON_IsNumber(item)) return false;
    if (job->compat->dtype == KS_FP32) {
        const float value = (float)item->valuedouble;
        ks_text_add(out, (const char *)&value, sizeof value);
        return true;
    }
    if (item->valuedouble < INT32_MIN || item->valuedouble > INT32_MAX) return false;
    const int32_t value = (int32_t)item->valuedouble;
    ks_text_add(out, (const char *)&value, sizeof value);
    return (double)value == item->valuedouble;
}

/* Nested lists, in the order of their leaves. */
static ks_status read_data(const ks_compat_job *job, const cJSON *data, compat_tensor *out, ks_error *error)
{
    const cJSON *at[DEPTH_MAX];
    size_t count = 0;
    int depth = 0;
    at[0] = data->child;
    while (depth >= 0) {
        const cJSON *item = at[depth];
        if (!item) {
            depth--;
            continue;
        }
        at[depth] = item->next;
        if (cJSON_IsArray(item)) {
            if (++depth == DEPTH_MAX) return ks_fail(error, KS_JSON_LIMIT, "'data' is nested too deeply");
            at[depth] = item->child;
            continue;
        }
        if (!add_element(job, item, &out->bytes))
            return ks_fail(error, KS_RANGE, "element %zu of 'data' is no %s", count, ks_dtype_name(job->compat->dtype));
        count++;
    }
    if (count == out->count) return KS_OK;
    return ks_fail(error, KS_COUNT, "Failed to parse 'data' field: shape does not match true shape");
}

static ks_status read_blob(ks_compat_job *job, const cJSON *size, compat_tensor *out, ks_error *error)
{
    uint64_t bytes;
    if (!read_size(size, &bytes)) return bad_field("binary_data_size", error);
    if (bytes > job->body.length - job->taken)
        return ks_fail(error, KS_BINARY_SIZE,
                       "unexpected size for an input, expecting %" PRIu64 " additional bytes for model '%s'",
                       bytes - (job->body.length - job->taken), job->model->name);
    ks_text_add(&out->bytes, job->body.bytes + job->taken, (size_t)bytes);
    job->taken += (size_t)bytes;
    return KS_OK;
}

/* A window without a name of its own for the device: these models work on the host. */
static ks_status hold(ks_regions *regions, const cJSON *parameters, ks_window *out, ks_error *error)
{
    const cJSON *region = cJSON_GetObjectItemCaseSensitive(parameters, "shared_memory_region");
    const cJSON *offset = cJSON_GetObjectItemCaseSensitive(parameters, "shared_memory_offset");
    uint64_t at = 0, bytes = 0;
    if (!regions)
        return ks_fail(error, KS_UNSUPPORTED,
                       "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
    if (!cJSON_IsString(region) || (offset && !read_size(offset, &at)) ||
        !read_size(cJSON_GetObjectItemCaseSensitive(parameters, "shared_memory_byte_size"), &bytes))
        return bad_field("shared_memory_byte_size", error);
    return ks_window_hold(regions, region->valuestring, at, bytes, out, error);
}

static ks_status read_shared(ks_regions *regions, const cJSON *parameters, compat_tensor *out, ks_error *error)
{
    ks_window window = {0};
    ks_status status = hold(regions, parameters, &window, error);
    if (status != KS_OK) return status;
    char *const room = ks_text_room(&out->bytes, window.bytes);
    status = room ? ks_window_read(&window, room, window.bytes, error) : no_memory(error);
    if (status == KS_OK) out->bytes.length += window.bytes;
    ks_window_release(regions, &window);
    return status;
}

/* Whether the bytes are as many elements as the shape says. */
static ks_status check_bytes(const ks_compat_job *job, const char *name, const compat_tensor *in, ks_error *error)
{
    size_t count = 0, at = 0;
    if (in->bytes.broken) return no_memory(error);
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
    assert(count <= TENSORS);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static ks_status read_input(ks_compat_job *job, ks_regions *regions, const cJSON *input, ks_error *error)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(input, "name");
    const cJSON *datatype = cJSON_GetObjectItemCaseSensitive(input, "datatype");
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(input, "parameters");
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(input, "data");
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(parameters, "binary_data_size");
    const cJSON *region = cJSON_GetObjectItemCaseSensitive(parameters, "shared_memory_region");
    if (!cJSON_IsString(name)) return bad_field("name", error);
    if (!cJSON_IsString(datatype)) return bad_field("datatype", error);
    const int which = index_of(input_names, job->compat->tensors, name->valuestring);
    if (which < 0 || job->in[which].present)
        return ks_fail(error, KS_NAME,
                       which < 0 ? "unexpected inference input '%s' for model '%s'"
                                 : "input '%s' already exists in request for model '%s'",
                       quoted(name->valuestring).text, job->model->name);
    if (strcmp(datatype->valuestring, ks_dtype_name(job->compat->dtype)) != 0)
        return ks_fail(error, KS_DATATYPE, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                       input_names[which], quoted(datatype->valuestring).text, job->model->name,
                       ks_dtype_name(job->compat->dtype));
    compat_tensor *in = &job->in[which];
    in->present = true;
    ks_status status = read_shape(job, cJSON_GetObjectItemCaseSensitive(input, "shape"), in, error);
    if (status != KS_OK) return status;
    if (cJSON_IsArray(data) + (size != NULL) + (region != NULL) != 1)
        return ks_fail(error, KS_COUNT,
                       "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
                       "'shared_memory_region' in 'parameters'.");
    status = size     ? read_blob(job, size, in, error)
             : region ? read_shared(regions, parameters, in, error)
                      : read_data(job, data, in, error);
    return status == KS_OK ? check_bytes(job, input_names[which], in, error) : status;
}

static ks_status read_outputs(ks_compat_job *job, ks_regions *regions, const cJSON *top, ks_error *error)
{
    const cJSON *output;
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(top, "parameters");
    const bool all_binary = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(parameters, "binary_data_output"));
    int count = 0;
    cJSON_ArrayForEach(output, cJSON_GetObjectItemCaseSensitive(top, "outputs"))
    {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(output, "name");
        parameters = cJSON_GetObjectItemCaseSensitive(output, "parameters");
        if (!cJSON_IsString(name)) return bad_field("name", error);
        const int which = index_of(output_names, job->compat->tensors, name->valuestring);
        if (which < 0 || job->wish[which].wanted)
            return ks_fail(error, KS_NAME,
                           which < 0 ? "unexpected inference output '%s' for model '%s'"
                                     : "output '%s' already exists in request for model '%s'",
                           quoted(name->valuestring).text, job->model->name);
        compat_wish *wish = &job->wish[which];
        wish->wanted = true;
        wish->binary = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(parameters, "binary_data"));
        count++;
        if (cJSON_GetObjectItemCaseSensitive(parameters, "classification"))
            return ks_fail(error, KS_PARAMETER, "model '%s' has no classes", job->model->name);
        if (!cJSON_GetObjectItemCaseSensitive(parameters, "shared_memory_region")) continue;
        const ks_status status = hold(regions, parameters, &wish->window, error);
        if (status != KS_OK) return status;
    }
    for (int i = 0; i < job->compat->tensors && count == 0; i++)
        job->wish[i] = (compat_wish){.wanted = true, .binary = all_binary};
    return KS_OK;
}

static ks_status read_top(ks_compat_job *job, ks_regions *regions, const cJSON *top, ks_error *error)
{
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(top, "inputs"), *input;
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(top, "id");
    int count = 0;
    if (id && (!cJSON_IsString(id) || strlen(id->valuestring) >= sizeof job->id)) return bad_field("id", error);
    if (id) strcpy(job->id, id->valuestring);
    if (!cJSON_IsArray(inputs)) return bad_field("inputs", error);
    cJSON_ArrayForEach(input, inputs)
    {
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

static ks_status read_request(ks_compat_job *job, ks_regions *regions, ks_error *error)
{
    if (job->json_length > (int64_t)job->body.length)
        return ks_fail(error, KS_HEADER_LENGTH, "inference header size should be in range (0, %zu), got: %" PRId64,
                       job->body.length, job->json_length);
    job->taken = job->json_length >= 0 ? (size_t)job->json_length : job->body.length;
    if (job->taken > JSON_MAX)
        return ks_fail(error, KS_BODY_SIZE, "request JSON size of %zu bytes exceeds the maximum of %d for this model",
                       job->taken, JSON_MAX);
    cJSON *top = cJSON_ParseWithLength(job->body.bytes ? job->body.bytes : "", job->taken);
    ks_status status = cJSON_IsObject(top)
                           ? read_top(job, regions, top, error)
                           : ks_fail(error, KS_JSON, "failed to parse the request JSON buffer: no object at 0");
    cJSON_Delete(top);
    return status;
}

/* --- the work ------------------------------------------------------------------------------------------------------- */

static uint32_t next_string(const ks_text *bytes, size_t *at, const char **out)
{
    uint32_t length;
    memcpy(&length, bytes->bytes + *at, sizeof length);
    *out = bytes->bytes + *at + sizeof length;
    *at += sizeof length + length;
    return length;
}

static ks_status next_number(const ks_text *bytes, size_t *at, int64_t *out, ks_error *error)
{
    const char *text;
    const uint32_t length = next_string(bytes, at, &text);
    if (ks_number_read(text, length, KS_INT64, out) == KS_NUMBER_OK && *out >= INT32_MIN && *out <= INT32_MAX)
        return KS_OK;
    return ks_fail(error, KS_RANGE, "'%s' is no decimal number", ks_quoted(text, length).text);
}

static void add_number_text(ks_text *out, int64_t value)
{
    char text[NUMBER_MAX];
    const uint32_t length = (uint32_t)snprintf(text, sizeof text, "%" PRId64, value);
    ks_text_add(out, (const char *)&length, sizeof length);
    ks_text_add(out, text, length);
}

/* Sum and difference, of INT32 (which wraps) or of decimal texts. */
static ks_status add_and_subtract(ks_compat_job *job, ks_error *error)
{
    size_t at[TENSORS] = {0, 0};
    for (size_t i = 0; i < job->in[0].count; i++) {
        if (job->compat->dtype == KS_BYTES) {
            int64_t a, b;
            ks_status status = next_number(&job->in[0].bytes, &at[0], &a, error);
            if (status == KS_OK) status = next_number(&job->in[1].bytes, &at[1], &b, error);
            if (status != KS_OK) return status;
            add_number_text(&job->out[0].bytes, a + b);
            add_number_text(&job->out[1].bytes, a - b);
            continue;
        }
        uint32_t a, b;
        memcpy(&a, job->in[0].bytes.bytes + i * sizeof a, sizeof a);
        memcpy(&b, job->in[1].bytes.bytes + i * sizeof b, sizeof b);
        const uint32_t sum = a + b, difference = a - b;
        ks_text_add(&job->out[0].bytes, (const char *)&sum, sizeof sum);
        ks_text_add(&job->out[1].bytes, (const char *)&difference, sizeof difference);
    }
    return KS_OK;
}

static ks_status work(ks_compat_job *job, ks_error *error)
{
    ks_status status = KS_OK;
    if (job->compat->tensors == 2)
        status = add_and_subtract(job, error);
    else
        ks_text_add(&job->out[0].bytes, job->in[0].bytes.bytes, job->in[0].bytes.length);
    for (int i = 0; i < TENSORS; i++)
        if (job->out[i].bytes.broken) return no_memory(error);
    return status;
}

/* --- the answer ----------------------------------------------------------------------------------------------------- */

static void write_data(const ks_compat_job *job, const compat_tensor *tensor, ks_text *out)
{
    const size_t count = job->in[0].count;
    size_t at = 0;
    int non_finite = 0;
    ks_text_puts(out, ",\"data\":[");
    if (job->compat->dtype != KS_BYTES) {
        char *const room = ks_text_room(out, count * KS_NUMBER_TEXT_MAX);
        if (room && count > 0)
            out->length += ks_numbers_write(tensor->bytes.bytes, count, job->compat->dtype, room, &non_finite);
    }
    for (size_t i = 0; i < count && job->compat->dtype == KS_BYTES; i++) {
        const char *text;
        const uint32_t length = next_string(&tensor->bytes, &at, &text);
        if (i > 0) ks_text_puts(out, ",");
        ks_text_json(out, text, length);
    }
    ks_text_puts(out, "]");
}

static ks_status write_output(ks_compat_job *job, int which, bool first, ks_text *head, ks_text *blobs, ks_error *error)
{
    const compat_tensor *tensor = &job->out[which], *like = &job->in[0];
    compat_wish *wish = &job->wish[which];
    ks_text_printf(head, "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[", first ? "" : ",", output_names[which],
                   ks_dtype_name(job->compat->dtype));
    for (int i = 0; i < like->rank; i++) ks_text_printf(head, "%s%" PRId64, i > 0 ? "," : "", like->dims[i]);
    ks_text_puts(head, "]");
    ks_status status = KS_OK;
    if (wish->window.region) {
        if (tensor->bytes.length > wish->window.bytes)
            return ks_fail(
                error, KS_WINDOW,
                "shared memory size specified with the request for output '%s' (%zu bytes) should be at least "
                "%zu bytes to hold the results",
                output_names[which], wish->window.bytes, tensor->bytes.length);
        status = ks_window_write(&wish->window, tensor->bytes.bytes, tensor->bytes.length, error);
    } else if (wish->binary) {
        ks_text_printf(head, ",\"parameters\":{\"binary_data_size\":%zu}", tensor->bytes.length);
        ks_text_add(blobs, tensor->bytes.bytes, tensor->bytes.length);
    } else {
        write_data(job, tensor, head);
    }
    ks_text_puts(head, "}");
    return status;
}

static ks_status write_answer(ks_compat_job *job, ks_text *out, int64_t *json_length, ks_error *error)
{
    ks_text blobs;
    ks_status status = KS_OK;
    bool first = true;
    ks_text_init(&blobs, 2 * BODY_MAX);
    ks_text_puts(out, "{");
    if (job->id[0]) {
        ks_text_puts(out, "\"id\":");
        ks_text_json(out, job->id, strlen(job->id));
        ks_text_puts(out, ",");
    }
    ks_text_printf(out, "\"model_name\":\"%s\",\"model_version\":\"1\",\"outputs\":[", job->model->name);
    for (int i = 0; i < job->compat->tensors && status == KS_OK; i++) {
        if (!job->wish[i].wanted) continue;
        status = write_output(job, i, first, out, &blobs, error);
        first = false;
    }
    ks_text_puts(out, "]}");
    *json_length = blobs.length > 0 ? (int64_t)out->length : -1;
    ks_text_add(out, blobs.bytes, blobs.length);
    out->broken |= blobs.broken;
    ks_text_fini(&blobs);
    return status;
}

ks_status ks_compat_answer(ks_compat_job *job, ks_regions *regions, ks_text *out, int64_t *json_length, ks_error *error)
{
    ks_status status = job->inflate ? ks_inflate_end(job->inflate, error) : KS_OK;
    if (status == KS_OK) status = read_request(job, regions, error);
    if (status == KS_OK) status = work(job, error);
    if (status == KS_OK) status = write_answer(job, out, json_length, error);
    for (int i = 0; i < TENSORS; i++)
        if (job->wish[i].window.region) ks_window_release(regions, &job->wish[i].window);
    return status;
}
