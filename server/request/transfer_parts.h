/* What transfer.c (a transfer's life; downloads) and upload.c (what a body's chunks come to) share. Nothing outside of these includes it. */
#ifndef KS_TRANSFER_PARTS_H
#define KS_TRANSFER_PARTS_H
#include "codec/format.h"
#include "request/infer_parts.h"
#include "request/transfer.h"

/* Bytes of the body that follow each other and go to one content, or nowhere. */
typedef struct ks_part {
    char name[KS_TENSOR_NAME_MAX + 1];
    ks_content *content; /* NULL: nowhere, or handed over */
    bool kept;
    ks_tensor tensor;
} ks_part;

struct ks_transfer {
    ks_transfer *next, *previous; /* of all that there are */
    ks_infers *infers;
    void *client; /* NULL: it has left */
    ks_error fault;
    ks_large_request large; /* SHUT where the host sees the memory */
    /* an upload: */
    void (*fini)(ks_transfer *); /* gives back what it still holds; NULL: a download */
    ks_store *store;
    ks_tenant tenant;
    char tenant_name[KS_TENANT_NAME_MAX + 1], key[KS_TENSOR_NAME_MAX + 1];
    char name[KS_TENSOR_NAME_MAX + 1]; /* or the prefix, where all is true */
    bool all;
    const ks_format *format; /* NULL: raw */
    int64_t content_length;  /* -1: not known */
    bool checks;             /* the digest */
    unsigned char digest[KS_DIGEST_BYTES];
    ks_hash *body; /* of all that comes, where a file's digest is checked */
    char *head;    /* of the file, until it is read */
    size_t head_length, head_due;
    bool head_sized;
    ks_part *parts;
    int count, now;
    size_t filled;         /* of parts[now]: bytes that have come, */
    size_t put;            /* and that have gone to its memory */
    ks_hash *hash;         /* of parts[now] */
    unsigned char *staged; /* an array in Fortran's order, on its way to C's */
    size_t staged_bytes;   /* taken of the budget */
    ks_fortran fortran;
    bool over; /* the body, and all of it has been put */
    /* a download: */
    ks_content *content;
    size_t lead_bytes;
    char lead[KS_FILE_HEAD_MAX];
};

static inline ks_transfer *ks_transfer_of(const ks_large_request *large)
{
    return (ks_transfer *)((char *)(uintptr_t)large - offsetof(ks_transfer, large));
}

/* --- transfer.c, for infer.c --- */

/* The large request of a transfer can go on, or is shut. Returns the client; NULL: it has left, and the transfer is gone. */
void *ks_transfer_woken(ks_large_request *large);
void ks_transfers_close(ks_infers *infers); /* behind ks_large_requests_close */

/* --- transfer.c, for upload.c, which sets fini --- */

ks_transfer *ks_transfer_open(ks_infers *infers, void *client); /* NULL: no memory */
#endif
