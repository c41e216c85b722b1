/* Bytes of resident tensors: an upload's from the body's chunks to the contents' memory, a download's from there to the response.
 *
 * Copies   where the host sees the memory, bytes are copied as they come and sent from where they lie; else they go through the
 *          shard's ring (large.h), which alone is between: no other host memory, but for an array in Fortran's order, which is put
 *          in order in memory of the bytes in flight first.
 * Waiting  nothing here blocks: an upload takes fewer bytes than it is offered, a download gives none, until ks_infers_woken names the
 *          client.
 * Owner    a transfer holds its contents until its copies have ended, even when its client has left.  Threads  the shard's own. */
#ifndef KS_TRANSFER_H
#define KS_TRANSFER_H
#include "request/infer.h"
#include "resident/store.h"

typedef struct ks_transfer ks_transfer;

/* What an upload's head says. Strings need not outlive ks_upload_begin. */
typedef struct ks_upload_source {
    ks_store *store;
    const ks_tenant *tenant;
    const ks_format *format; /* NULL: raw, */
    const ks_tensor *tensor; /* of this datatype and shape */
    const char *name;        /* of the one tensor; NULL: prefix and each key, of all that the file has */
    const char *prefix;      /* "": none */
    const char *key;         /* of the file's tensor that is meant; "": its only one */
    size_t
        definition_max; /* not 0: name is NULL, and the file is a model's: its keys are not to be tensors' names, and its head has
                                    a definition of so many bytes at most */
    int64_t content_length;      /* -1: not known */
    const ks_op *op;             /* that its tensors are put in a form for; NULL: none */
    const unsigned char *digest; /* that the body must have, KS_DIGEST_BYTES of SHA-256; NULL: any */
    void *client;
} ks_upload_source;

/* KS_BINARY_SIZE, KS_MEMORY, and what ks_store_reserve says. Later, of a model's head: KS_DEFINITION, KS_BODY_SIZE. */
ks_status ks_upload_begin(ks_infers *infers, const ks_upload_source *source, ks_transfer **out, ks_error *error);
/* Bytes of the body; returns how many were taken. A fault is remembered: what follows is dropped. */
size_t ks_upload_feed(ks_transfer *upload, const char *bytes, size_t n);
/* The body is complete. false: again in another turn. */
bool ks_upload_end(ks_transfer *upload);
bool ks_upload_done(ks_transfer *upload); /* behind it: all copies have ended, or there is a fault */
/* Of one without a fault that is done: its tensors, in the order of their bytes. */
int ks_upload_count(const ks_transfer *upload);
const char *ks_upload_definition(const ks_transfer *upload); /* of a model's */
const char *ks_upload_name(const ks_transfer *upload, int index);
ks_content *ks_upload_content_take(ks_transfer *upload, int index);

/* The client may read the content from `head`, which lies in front of it, to its end. Takes the caller's hold. KS_MEMORY. */
ks_status ks_download_begin_take(ks_infers *infers, ks_content **content, const char *head, size_t head_bytes,
                                 void *client, ks_transfer **out, ks_error *error);
/* As ks_infer_view, ks_infer_used, ks_infer_read. */
int64_t ks_download_view(ks_transfer *download, uint64_t at, const char **bytes);
void ks_download_used(ks_transfer *download, uint64_t at, size_t n);
int64_t ks_download_read(ks_transfer *download, uint64_t at, char *out, size_t most);

bool ks_transfer_waits(const ks_transfer *transfer);
const ks_error *ks_transfer_fault(const ks_transfer *transfer); /* status KS_OK: none */
void ks_transfer_abort(ks_transfer *transfer, ks_status status, const char *sentence);
void *ks_transfer_client(const ks_transfer *transfer);
/* The client has what it wanted, or has gone. */
void ks_transfer_leave(ks_transfer **transfer);
#endif
