/* A transfer's life, and downloads: a content's bytes from its memory to a response.
 *
 * Owns       the transfers, from their begin until their client has left and their copies have ended.
 * Interface  transfer.h, but for what upload.c has of it.
 * Limits     one transfer for a connection that asks for one; an upload has a place among --tensor-uploads.
 * Threads    the shard's own. */
#include "base/util.h"
#include "request/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "request/transfer_parts.h"

ks_transfer *ks_transfer_open(ks_infers *infers, void *client)
{
    ks_transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer) return NULL;
    transfer->infers = infers;
    transfer->client = client;
    transfer->next = infers->transfers;
    if (transfer->next) transfer->next->previous = transfer;
    infers->transfers = transfer;
    return transfer;
}

/* No copy of it is under way, and no hasher reads its memory. */
static void end(ks_transfer *transfer)
{
    *(transfer->previous ? &transfer->previous->next : &transfer->infers->transfers) = transfer->next;
    if (transfer->next) transfer->next->previous = transfer->previous;
    if (transfer->fini) transfer->fini(transfer);
    if (transfer->content) ks_content_release(&transfer->content);
    free(transfer);
}

/* --- hashers ------------------------------------------------------------------------------------------------------ */

void ks_transfer_wait_for_hashers(ks_transfer *transfer)
{
    ks_infers *infers = transfer->infers;
    infers->looks_again = true;
    if (transfer->hash_waits) return;
    transfer->hash_waits = true;
    infers->hash_waits++;
}

static void end_hash_wait(ks_transfer *transfer)
{
    if (!transfer->hash_waits) return;
    transfer->hash_waits = false;
    transfer->infers->hash_waits--;
}

static bool is_read(ks_transfer *transfer)
{
    return transfer->may_go_on && !transfer->may_go_on(transfer);
}

/* It has left: it ends with the last copy and the last byte that is hashed. */
static void end_left(ks_transfer *transfer)
{
    if (transfer->large.state != KS_LARGE_SHUT) return; /* which comes back */
    if (is_read(transfer)) {
        ks_transfer_wait_for_hashers(transfer);
        return;
    }
    end_hash_wait(transfer);
    end(transfer);
}

void ks_transfers_ask(ks_infers *infers)
{
    infers->looks_again = false;
    if (!infers->transfers || !infers->hashers) return;
    if (infers->hash_waits > 0 || ks_large_requests_wait_ns(infers->large_requests) < INT64_MAX)
        atomic_store(&infers->hash_waiter.asked, true);
}

void *ks_transfers_hashed(ks_infers *infers)
{
    ks_transfer *next;
    for (ks_transfer *transfer = infers->transfers; transfer; transfer = next) {
        next = transfer->next;
        if (!transfer->hash_waits || is_read(transfer)) continue;
        end_hash_wait(transfer);
        if (transfer->client) return transfer->client;
        end_left(transfer);
    }
    return NULL;
}

/* --- leaving ------------------------------------------------------------------------------------------------------ */

void ks_transfer_leave(ks_transfer **pointer)
{
    ks_transfer *transfer = *pointer;
    *pointer = NULL;
    if (!transfer) return;
    transfer->client = NULL;
    end_hash_wait(transfer);
    if (ks_large_leave(&transfer->large)) end_left(transfer);
}

void *ks_transfer_woken(ks_large_request *large)
{
    ks_transfer *transfer = ks_transfer_of(large);
    if (large->state == KS_LARGE_SHUT && !transfer->client) {
        end_left(transfer);
        return NULL;
    }
    return transfer->client;
}

void ks_transfers_settle(ks_infers *infers)
{
    for (ks_transfer *transfer = infers->transfers; transfer; transfer = transfer->next)
        if (transfer->settle) transfer->settle(transfer);
}

void ks_transfers_close(ks_infers *infers)
{
    while (infers->transfers) end(infers->transfers);
}

bool ks_transfer_waits(const ks_transfer *transfer)
{
    return transfer->hash_waits || (transfer->large.state != KS_LARGE_SHUT && transfer->large.pause != KS_PAUSE_NONE);
}

const ks_error *ks_transfer_fault(const ks_transfer *transfer)
{
    return &transfer->fault;
}

void ks_transfer_abort(ks_transfer *transfer, ks_status status, const char *sentence)
{
    if (transfer->fault.status == KS_OK) ks_fail(&transfer->fault, status, "%s", sentence);
}

void *ks_transfer_client(const ks_transfer *transfer)
{
    return transfer->client;
}

/* --- downloads ---------------------------------------------------------------------------------------------------- */

ks_status ks_download_begin_take(ks_infers *infers, ks_content **content, const char *head, size_t head_bytes,
                                 void *client, ks_transfer **out, ks_error *error)
{
    ks_transfer *download = ks_transfer_open(infers, client);
    if (!download) {
        ks_content_release(content);
        return ks_fail(error, KS_MEMORY, "no memory for a download");
    }
    download->content = *content;
    *content = NULL;
    memcpy(download->lead, head, head_bytes);
    download->lead_bytes = head_bytes;
    if (!download->content->memory.in && download->content->tensor.size_bytes > 0)
        ks_large_begin_transfer(infers->large_requests, &download->large, &download->content->memory,
                                download->content->tensor.size_bytes, &download->fault);
    *out = download;
    return KS_OK;
}

int64_t ks_download_view(ks_transfer *download, uint64_t at, const char **bytes)
{
    const ks_content *content = download->content;
    if (download->fault.status != KS_OK) return -1;
    if (at < download->lead_bytes) {
        *bytes = download->lead + at;
        return (int64_t)(download->lead_bytes - at);
    }
    const size_t offset = (size_t)at - download->lead_bytes;
    if (content->memory.in) {
        *bytes = (const char *)content->memory.in + offset;
        return (int64_t)(content->tensor.size_bytes - offset);
    }
    const size_t size = ks_large_view(&download->large, offset, bytes);
    return size == 0 && download->fault.status != KS_OK ? -1 : (int64_t)size;
}

void ks_download_used(ks_transfer *download, uint64_t at, size_t n)
{
    if (download->large.state != KS_LARGE_SHUT && at >= download->lead_bytes) ks_large_used(&download->large, n);
}

int64_t ks_download_read(ks_transfer *download, uint64_t at, char *out, size_t most)
{
    const char *bytes = NULL;
    const int64_t size = ks_download_view(download, at, &bytes);
    if (size <= 0) return size;
    const size_t n = ks_least_size((size_t)size, most);
    memcpy(out, bytes, n);
    ks_download_used(download, at, n);
    return (int64_t)n;
}
