/* Uploads: a body's chunks to the memory of the contents that they are, and to their hashes.
 *
 * Hashes     of a tensor of KS_HASH_STEP bytes and more by hashers, which read the bytes where they lie: in the ring while they are
 *            copied, or in the content's memory; of smaller ones by this thread, for which it is less than a hand-over. The SHA-256 of a
 *            file's whole body is this thread's.
 * Owns       what a transfer has beside its copies: the file's head, contents that are not handed over, a place among the uploads.
 * Interface  transfer.h: ks_upload_*.
 * Limits     a file's head has at most HEAD_MAX bytes and KS_FILE_TENSORS_MAX tensors; the bytes are bounded by the store's budget,
 *            and memory for them is taken before they come.
 * Threads    the shard's own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "request/transfer.h"
#include "request/transfer_parts.h"

enum { HEAD_MAX = 4 << 20, SLICE = 256 << 10 };

static bool is_remote(const ks_transfer *upload)
{
    return upload->large.state != KS_LARGE_SHUT;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

/* ks_large_reader_fn */
static void give_ring(ks_large_request *large, const unsigned char *bytes, size_t n, _Atomic int *readers)
{
    const ks_transfer *upload = ks_transfer_of(large);
    ks_hash_give(upload->parts[upload->now].hash, bytes, n, readers);
}

/* The part that the next bytes are of: its hash and its memory. */
static ks_status begin_part(ks_transfer *upload)
{
    ks_infers *infers = upload->infers;
    ks_part *part = &upload->parts[upload->now];
    const size_t bytes = part->tensor.size_bytes;
    const bool body_digest = upload->checks && !upload->format;
    upload->filled = upload->put = upload->given = 0;
    if (!part->kept) return KS_OK;
    part->shared = infers->hashers && bytes >= KS_HASH_STEP;
    part->hash = part->shared ? ks_hash_open_shared(infers->hashers, &infers->hash_waiter, bytes, body_digest)
                              : ks_hash_open(body_digest);
    if (!part->hash) return ks_fail(&upload->fault, KS_MEMORY, "no memory for a hash");
    if (part->content->memory.in || bytes == 0) return KS_OK;
    if (!is_remote(upload))
        ks_large_begin_transfer(infers->large_requests, &upload->large, &part->content->memory, 0, &upload->fault);
    ks_large_turn_to(&upload->large, &part->content->memory, part->shared ? give_ring : NULL);
    return KS_OK;
}

/* Hashers learn of what lies in the content's memory: whole steps, or all. */
static void give_content(ks_transfer *upload, bool all)
{
    const ks_part *part = &upload->parts[upload->now];
    const size_t end = upload->put - (all ? 0 : upload->put % KS_HASH_STEP);
    if (!part->shared || !part->content->memory.in || end <= upload->given) return;
    ks_hash_give(part->hash, part->content->memory.in + upload->given, end - upload->given, &upload->readers);
    upload->given = end;
}

/* Parts whose bytes are hashed, in order, have their etags. */
static void end_hashes(ks_transfer *upload)
{
    while (upload->hashed < upload->now) {
        ks_part *part = &upload->parts[upload->hashed];
        if (part->hash && ks_hash_waiting(part->hash) > 0) return;
        if (part->hash) ks_hash_end(part->hash, part->content);
        ks_hash_close(&part->hash);
        upload->hashed++;
    }
}

static ks_status end_part(ks_transfer *upload)
{
    const ks_part *part = &upload->parts[upload->now];
    if (part->kept && is_remote(upload) && ks_large_finish(&upload->large) != KS_OK) return upload->fault.status;
    if (part->kept) give_content(upload, true);
    upload->now++;
    end_hashes(upload);
    return upload->now < upload->count ? begin_part(upload) : KS_OK;
}

/* Bytes of its parts that wait for hashers. */
static size_t waiting(const ks_transfer *upload)
{
    size_t bytes = 0;
    for (int i = upload->hashed; i < upload->count && i <= upload->now; i++)
        if (upload->parts[i].hash) bytes += ks_hash_waiting(upload->parts[i].hash);
    return bytes;
}

/* Bytes to a content's memory that the host sees: no more than hashers come along with, so that they find them in a cache. */
static void put_content(ks_transfer *upload, const char *bytes, size_t n, size_t *taken)
{
    const ks_part *part = &upload->parts[upload->now];
    if (part->shared) {
        const size_t behind = waiting(upload);
        *taken = ks_least_size(n, behind < KS_HASH_WINDOW ? KS_HASH_WINDOW - behind : 0);
        if (*taken < n) ks_transfer_wait_for_hashers(upload);
    }
    memcpy(part->content->memory.in + upload->put, bytes, *taken);
}

/* Bytes in C's order, to the part's memory and its hash. */
static ks_status put_bytes(ks_transfer *upload, const char *bytes, size_t n, size_t *taken)
{
    const ks_part *part = &upload->parts[upload->now];
    *taken = n;
    if (part->content->memory.in)
        put_content(upload, bytes, n, taken);
    else if (ks_large_write(&upload->large, upload->put, bytes, n, taken) != KS_OK)
        return upload->fault.status;
    upload->infers->looks_again |= *taken < n;
    if (!part->shared) ks_hash_feed(part->hash, bytes, *taken);
    upload->put += *taken;
    give_content(upload, false);
    return KS_OK;
}

static ks_status check_values(ks_transfer *upload, const char *bytes, size_t n)
{
    unsigned char seen = 0;
    const ks_part *part = &upload->parts[upload->now];
    if (part->tensor.dtype != KS_BOOL) return KS_OK;
    for (size_t i = 0; i < n; i++) seen |= (unsigned char)bytes[i];
    if (seen <= 1) return KS_OK;
    return ks_fail(&upload->fault, KS_RANGE, "tensor '%s' has datatype BOOL and a byte that is neither 0 nor 1",
                   part->name);
}

static ks_status feed_part(ks_transfer *upload, const char *bytes, size_t n, size_t *taken)
{
    const ks_part *part = &upload->parts[upload->now];
    const size_t offered = ks_least_size(n, part->tensor.size_bytes - upload->filled);
    *taken = offered;
    ks_status status = part->kept ? check_values(upload, bytes, offered) : KS_OK;
    if (upload->staged)
        ks_fortran_put(&upload->fortran, upload->staged, bytes, offered);
    else if (status == KS_OK && part->kept)
        status = put_bytes(upload, bytes, offered, taken);
    upload->filled += *taken;
    return status;
}

/* Whether the part has come, and has been put where it belongs. */
static bool is_put(const ks_transfer *upload)
{
    const ks_part *part = &upload->parts[upload->now];
    return upload->filled == part->tensor.size_bytes && (!upload->staged || upload->put == part->tensor.size_bytes);
}

static ks_status end_parts(ks_transfer *upload)
{
    while (upload->now < upload->count && is_put(upload))
        if (end_part(upload) != KS_OK) return upload->fault.status;
    return upload->fault.status;
}

/* Memory for what is kept, all of it or none. */
static ks_status reserve(ks_transfer *upload)
{
    for (int i = 0; i < upload->count; i++) {
        ks_part *part = &upload->parts[i];
        char what[KS_TENSOR_NAME_MAX + 16];
        if (!part->kept) continue;
        snprintf(what, sizeof what, "tensor '%s'", part->name);
        const ks_status status =
            ks_store_reserve(upload->store, &upload->tenant, what, &part->tensor, &part->content, &upload->fault);
        if (status != KS_OK) return status;
        if (upload->op) ks_store_reserve_form(upload->store, &upload->tenant, part->content, upload->op);
    }
    return upload->count > 0 ? begin_part(upload) : KS_OK;
}

/* --- a file's head ------------------------------------------------------------------------------------------------ */

static ks_status name_part(ks_transfer *upload, const ks_file_tensor *item, ks_part *part)
{
    char name[2 * KS_TENSOR_NAME_MAX + 2];
    if (upload->model) { /* a key that is cut is no initializer's */
        const size_t bytes = strlen(item->name);
        if (bytes <= KS_TENSOR_NAME_MAX) memcpy(part->name, item->name, bytes + 1);
        return KS_OK;
    }
    snprintf(name, sizeof name, "%s%s", upload->name, upload->all ? item->name : "");
    const size_t length = strlen(name);
    const ks_status status = ks_tensor_name_check(name, length, &upload->fault);
    if (status != KS_OK)
        return ks_fail(&upload->fault, status,
                       "'%s': a tensor's name has 1 to %d bytes of [A-Za-z0-9_.-], neither . nor - in front",
                       ks_quoted(name, length).text, KS_TENSOR_NAME_MAX);
    memcpy(part->name, name, length + 1);
    return KS_OK;
}

static bool is_meant(const ks_transfer *upload, const ks_file_tensor *item)
{
    return upload->all || upload->key[0] == '\0' || strcmp(upload->key, item->name) == 0;
}

static ks_status list_parts(ks_transfer *upload, const ks_file_tensors *file)
{
    int kept = 0;
    upload->parts = calloc((size_t)file->count + 1, sizeof *upload->parts);
    if (!upload->parts) return ks_fail(&upload->fault, KS_MEMORY, "no memory for the file's tensors");
    for (int i = 0; i < file->count; i++) {
        ks_part *part = &upload->parts[upload->count++];
        part->tensor = file->item[i].tensor;
        part->kept = is_meant(upload, &file->item[i]);
        kept += part->kept;
        if (part->kept && name_part(upload, &file->item[i], part) != KS_OK) return upload->fault.status;
    }
    if (upload->all || kept == 1) return KS_OK;
    if (upload->key[0])
        return ks_fail(&upload->fault, KS_NAME, "the file has no tensor '%s'",
                       ks_quoted(upload->key, strlen(upload->key)).text);
    return ks_fail(&upload->fault, KS_COUNT,
                   "the file holds %d tensors: name one with key=, or put all with /v2/tensors?prefix=", kept);
}

/* Host memory for an array whose elements come in another order than they stay in. */
static ks_status stage(ks_transfer *upload)
{
    const ks_tensor *tensor = &upload->parts[0].tensor;
    if (!ks_budget_take(upload->infers->budget, tensor->size_bytes))
        return ks_fail(&upload->fault, KS_BUDGET, "no memory to put %zu bytes of Fortran's order in C's",
                       tensor->size_bytes);
    upload->staged_bytes = tensor->size_bytes;
    upload->staged = malloc(tensor->size_bytes);
    if (!upload->staged) return ks_fail(&upload->fault, KS_MEMORY, "no memory for %zu bytes", tensor->size_bytes);
    ks_fortran_begin(&upload->fortran, tensor);
    return KS_OK;
}

static ks_status check_length(ks_transfer *upload)
{
    uint64_t sum = upload->head_length;
    for (int i = 0; i < upload->count; i++)
        if (__builtin_add_overflow(sum, (uint64_t)upload->parts[i].tensor.size_bytes, &sum)) sum = UINT64_MAX;
    if (upload->content_length < 0 || (uint64_t)upload->content_length == sum) return KS_OK;
    return ks_fail(&upload->fault, KS_BINARY_SIZE,
                   "the file's header calls for a body of %" PRIu64 " bytes, got %" PRId64, sum,
                   upload->content_length);
}

/* What the head has, before memory for tensors is taken. */
static ks_status check_definition(ks_transfer *upload)
{
    if (!upload->model) return KS_OK;
    if (!upload->definition)
        return ks_fail(
            &upload->fault, KS_DEFINITION,
            "the file has no definition: the member 'kernserve' of its __metadata__ is to be the text of one");
    const size_t length = strlen(upload->definition);
    if (length <= upload->definition_max) return KS_OK;
    return ks_fail(&upload->fault, KS_BODY_SIZE,
                   "a definition of %zu bytes exceeds the maximum allowed size of %zu bytes", length,
                   upload->definition_max);
}

static ks_status end_head(ks_transfer *upload)
{
    ks_file_tensors file = {.wants_definition = upload->model};
    ks_status status = upload->format->tensors(upload->head, upload->head_length, &file, &upload->fault);
    upload->definition = file.definition;
    if (status == KS_OK) status = check_definition(upload);
    if (status == KS_OK) status = list_parts(upload, &file);
    const bool fortran = status == KS_OK && file.count == 1 && file.item[0].fortran;
    free(file.item);
    free(upload->head);
    upload->head = NULL;
    upload->head_due = 0;
    if (status == KS_OK) status = check_length(upload);
    if (status == KS_OK) status = reserve(upload);
    return status == KS_OK && fortran ? stage(upload) : status;
}

static ks_status begin_head(ks_transfer *upload)
{
    uint64_t bytes = 0;
    const ks_status status = upload->format->begin((const unsigned char *)upload->head, &bytes, &upload->fault);
    if (status != KS_OK) return status;
    if (bytes > HEAD_MAX)
        return ks_fail(&upload->fault, KS_BODY_SIZE,
                       "the file's header of %" PRIu64 " bytes exceeds the maximum allowed value of %d", bytes,
                       (int)HEAD_MAX);
    if (bytes < upload->head_length)
        return ks_fail(&upload->fault, KS_FIELD, "the file's header is too short to be one");
    upload->head_due = (size_t)bytes;
    upload->head_sized = true;
    return KS_OK;
}

/* Returns how many of the bytes are the head's. */
static size_t feed_head(ks_transfer *upload, const char *bytes, size_t n)
{
    size_t used = 0;
    while (upload->head_due > 0 && upload->fault.status == KS_OK) {
        if (upload->head_length == upload->head_due) {
            upload->fault.status = upload->head_sized ? end_head(upload) : begin_head(upload);
            continue;
        }
        if (used == n) break;
        char *const room = realloc(upload->head, upload->head_due);
        if (!room) {
            ks_fail(&upload->fault, KS_MEMORY, "no memory for the file's header");
            break;
        }
        upload->head = room;
        const size_t taken = ks_least_size(n - used, upload->head_due - upload->head_length);
        memcpy(upload->head + upload->head_length, bytes + used, taken);
        upload->head_length += taken;
        used += taken;
    }
    return used;
}

/* --- the body ------------------------------------------------------------------------------------------------------ */

static ks_status begin_raw(ks_transfer *upload, const ks_tensor *tensor)
{
    if (upload->content_length >= 0 && (uint64_t)upload->content_length != tensor->size_bytes)
        return ks_fail(&upload->fault, KS_BINARY_SIZE,
                       "tensor '%s' has %zu bytes by its shape and datatype, got a body of %" PRId64, upload->name,
                       tensor->size_bytes, upload->content_length);
    upload->parts = calloc(1, sizeof *upload->parts);
    if (!upload->parts) return ks_fail(&upload->fault, KS_MEMORY, "no memory for an upload");
    upload->count = 1;
    upload->parts[0].tensor = *tensor;
    upload->parts[0].kept = true;
    memcpy(upload->parts[0].name, upload->name, sizeof upload->name);
    return reserve(upload);
}

static void keep_words(ks_transfer *upload, const ks_upload_source *source)
{
    upload->tenant = *source->tenant;
    snprintf(upload->tenant_name, sizeof upload->tenant_name, "%s", source->tenant->name);
    upload->tenant.name = upload->tenant_name;
    upload->all = source->name == NULL;
    upload->model = source->definition_max > 0;
    upload->definition_max = source->definition_max;
    snprintf(upload->name, sizeof upload->name, "%s", upload->all ? source->prefix : source->name);
    snprintf(upload->key, sizeof upload->key, "%s", source->key);
    upload->format = source->format;
    upload->op = source->op;
    upload->content_length = source->content_length;
    upload->checks = source->digest != NULL;
    if (source->digest) memcpy(upload->digest, source->digest, KS_DIGEST_BYTES);
}

static ks_status begin(ks_transfer *upload, const ks_upload_source *source)
{
    keep_words(upload, source);
    if (!upload->format) return begin_raw(upload, source->tensor);
    upload->head_due = upload->format->first;
    if (!upload->checks) return KS_OK;
    upload->body = ks_hash_open(true);
    return upload->body ? KS_OK : ks_fail(&upload->fault, KS_MEMORY, "no memory for a hash");
}

/* ks_transfer.settle */
static void settle(ks_transfer *upload)
{
    for (int i = 0; i < upload->count; i++) ks_hash_close(&upload->parts[i].hash);
}

/* ks_transfer.may_go_on */
static bool may_go_on(ks_transfer *upload)
{
    const size_t behind = waiting(upload);
    return upload->over || !upload->client ? behind == 0 : behind <= KS_HASH_WINDOW / 2;
}

/* ks_transfer.fini */
static void fini(ks_transfer *upload)
{
    for (int i = 0; i < upload->count; i++) {
        ks_hash_close(&upload->parts[i].hash);
        if (upload->parts[i].content) ks_content_release(&upload->parts[i].content);
    }
    free(upload->parts);
    free(upload->head);
    free(upload->definition);
    free(upload->staged);
    if (upload->staged_bytes) ks_budget_give(upload->infers->budget, upload->staged_bytes);
    if (upload->body) ks_hash_close(&upload->body);
    ks_store_end_upload(upload->store);
}

ks_status ks_upload_begin(ks_infers *infers, const ks_upload_source *source, ks_transfer **out, ks_error *error)
{
    ks_status status = ks_store_begin_upload(source->store, error);
    if (status != KS_OK) return status;
    ks_transfer *upload = ks_transfer_open(infers, source->client);
    if (!upload) {
        ks_store_end_upload(source->store);
        return ks_fail(error, KS_MEMORY, "no memory for an upload");
    }
    upload->store = source->store;
    upload->fini = fini;
    upload->settle = settle;
    upload->may_go_on = may_go_on;
    status = begin(upload, source);
    if (status != KS_OK) {
        *error = upload->fault;
        ks_transfer_leave(&upload);
    }
    *out = upload;
    return status;
}

size_t ks_upload_feed(ks_transfer *upload, const char *bytes, size_t n)
{
    size_t used = upload->head_due > 0 ? feed_head(upload, bytes, n) : 0;
    while (used < n && upload->fault.status == KS_OK && end_parts(upload) == KS_OK) {
        size_t taken = 0;
        if (upload->now == upload->count || upload->filled == upload->parts[upload->now].tensor.size_bytes) {
            ks_fail(&upload->fault, KS_BINARY_SIZE, "the body has more bytes than shape and datatype call for");
            break;
        }
        if (feed_part(upload, bytes + used, n - used, &taken) != KS_OK) break;
        used += taken;
        if (taken == 0) break; /* the ring is full, or hashers are behind */
    }
    if (upload->fault.status != KS_OK) used = n;
    if (upload->body) ks_hash_feed(upload->body, bytes, used);
    return used;
}

/* Elements that were put in order go where all others go, a slice a turn. */
static ks_status put_staged(ks_transfer *upload)
{
    size_t taken = 0;
    const size_t left = upload->filled - upload->put;
    return put_bytes(upload, (const char *)upload->staged + upload->put, ks_least_size(left, SLICE), &taken);
}

static ks_status check_digest(ks_transfer *upload)
{
    ks_content whole = {.tensor = {.dtype = KS_UINT8}};
    if (!upload->checks) return KS_OK;
    if (upload->body) ks_hash_end(upload->body, &whole);
    const unsigned char *const found = upload->body ? whole.body_digest : upload->parts[0].content->body_digest;
    if (memcmp(found, upload->digest, KS_DIGEST_BYTES) == 0) return KS_OK;
    return ks_fail(&upload->fault, KS_DIGEST, "the body's SHA-256 is not that of Repr-Digest");
}

static ks_status check_end(ks_transfer *upload)
{
    if (upload->head_due > 0)
        return ks_fail(&upload->fault, KS_BINARY_SIZE, "the body ends within the file's header, after %zu bytes",
                       upload->head_length);
    if (end_parts(upload) != KS_OK || upload->now == upload->count) return upload->fault.status;
    const ks_part *part = &upload->parts[upload->now];
    if (upload->filled == part->tensor.size_bytes) return KS_OK; /* staged */
    return ks_fail(&upload->fault, KS_BINARY_SIZE, "the body ends %zu bytes before shape and datatype are complete",
                   part->tensor.size_bytes - upload->filled);
}

bool ks_upload_end(ks_transfer *upload)
{
    if (upload->fault.status != KS_OK || upload->over) return true;
    if (check_end(upload) != KS_OK) return true;
    if (upload->now < upload->count) {
        if (put_staged(upload) != KS_OK) return true;
        return false;
    }
    upload->over = true;
    return true;
}

/* Whether all copies have ended and all bytes are hashed; else it waits. */
static bool is_settled(ks_transfer *upload)
{
    end_hashes(upload);
    if (upload->hashed < upload->count) {
        ks_transfer_wait_for_hashers(upload);
        return false;
    }
    const bool settled = !is_remote(upload) || ks_large_settled(&upload->large);
    upload->infers->looks_again |= !settled;
    return settled;
}

/* A slice of the forms; false: others are left, for other turns. */
static bool make_forms(ks_transfer *upload)
{
    while (upload->formed < upload->count) {
        const ks_part *part = &upload->parts[upload->formed];
        bool over = true;
        if (part->kept && part->content->form_bytes > 0 &&
            ks_store_make_form(upload->store, part->content, &upload->row, &over, &upload->fault) != KS_OK)
            return true;
        if (!over) return false;
        upload->formed++;
        if (upload->row > 0 && upload->formed < upload->count) {
            upload->row = 0;
            return false;
        }
    }
    return true;
}

bool ks_upload_done(ks_transfer *upload)
{
    if (upload->fault.status != KS_OK) return true;
    if (!upload->over || !is_settled(upload) || !make_forms(upload)) return false;
    if (!upload->checked) check_digest(upload);
    upload->checked = true;
    return true;
}

/* --- what came of it ------------------------------------------------------------------------------------------------ */

/* The part behind those that are not kept. */
static ks_part *kept(const ks_transfer *upload, int index)
{
    ks_part *part = upload->parts;
    while (!part->kept || index-- > 0) part++;
    return part;
}

int ks_upload_count(const ks_transfer *upload)
{
    int count = 0;
    for (int i = 0; i < upload->count; i++) count += upload->parts[i].kept;
    return count;
}

const char *ks_upload_definition(const ks_transfer *upload)
{
    return upload->definition;
}

const char *ks_upload_name(const ks_transfer *upload, int index)
{
    return upload->all ? upload->parts[index].name : kept(upload, index)->name;
}

ks_content *ks_upload_content_take(ks_transfer *upload, int index)
{
    ks_part *part = upload->all ? &upload->parts[index] : kept(upload, index);
    ks_content *content = part->content;
    part->content = NULL;
    return content;
}
