/* What transfer.c (a transfer's life; downloads) and upload.c (what a body's chunks come to) share. Nothing outside of these includes it. */
#ifndef KS_TRANSFER_PARTS_H
#define KS_TRANSFER_PARTS_H
#include "codec/format.h"
#include "request/infer_parts.h"
#include "resident/hash.h"
#include "request/transfer.h"

/* Bytes of the body that follow each other and go to one content, or nowhere. */
typedef struct ks_part {
    char name[KS_TENSOR_NAME_MAX + 1];
    ks_content *content; /* NULL: nowhere, or handed over */
    ks_hash *hash;       /* NULL: its bytes have not begun, or it is known */
    bool kept;
    bool shared; /* by hashers */
    ks_tensor tensor;
} ks_part;

struct ks_transfer {
    ks_transfer *next, *previous; /* of all that there are */
    ks_infers *infers;
    void *client; /* NULL: it has left */
    ks_error fault;
    ks_large_request large; /* SHUT where the host sees the memory */
    bool hash_waits;        /* for hashers, and is counted so */
    /* an upload: */
    void (*fini)(ks_transfer *);      /* gives back what it still holds; NULL: a download */
    void (*settle)(ks_transfer *);    /* waits until no hasher reads its memory */
    bool (*may_go_on)(ks_transfer *); /* hashers have done what it waits for: where it has no client, all */
    ks_store *store;
    ks_tenant tenant;
    char tenant_name[KS_TENANT_NAME_MAX + 1], key[KS_TENSOR_NAME_MAX + 1];
    char name[KS_TENSOR_NAME_MAX + 1]; /* or the prefix, where all is true */
    bool all, model;
    char *definition; /* of a model's file, once its head is read */
    size_t definition_max;
    const ks_op *op;         /* of the forms; NULL: none */
    int formed;              /* parts in front whose form is made, or that have none */
    int64_t row;             /* of the next one's form */
    const ks_format *format; /* NULL: raw */
    int64_t content_length;  /* -1: not known */
    bool checks;             /* the digest */
    unsigned char digest[KS_DIGEST_BYTES];
    ks_hash *body; /* of all that comes, where a file's digest is checked */
    char *head;    /* of the file, until it is read */
    size_t head_length, head_due;
    bool head_sized;
    ks_part *parts;
    int count, now, hashed; /* hashed: parts in front whose hash is known */
    size_t filled;          /* of parts[now]: bytes that have come, */
    size_t put;             /* that have gone to its memory, */
    size_t given;           /* and, where hashers read them there, that these know of */
    _Atomic int readers;    /* of contents' memory: hashers */
    unsigned char *staged;  /* an array in Fortran's order, on its way to C's */
    size_t staged_bytes;    /* taken of the budget */
    ks_fortran fortran;
    bool over;    /* the body, and all of it has been put */
    bool checked; /* and its digest is right */
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
void ks_transfers_settle(ks_infers *infers); /* in front of ks_large_requests_close: no hasher reads the ring */
void ks_transfers_close(ks_infers *infers);  /* behind it */
/* Once a turn, in front of the look at large requests: where a transfer waits, hashers wake this thread from now on. */
void ks_transfers_ask(ks_infers *infers);
/* The client of a transfer that hashers have let go on; NULL: there is none. */
void *ks_transfers_hashed(ks_infers *infers);

/* --- transfer.c, for upload.c, which sets fini, settle and may_go_on --- */

ks_transfer *ks_transfer_open(ks_infers *infers, void *client); /* NULL: no memory */
void ks_transfer_wait_for_hashers(ks_transfer *transfer);
#endif
