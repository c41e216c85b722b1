/* Resident tensors: names for contents that stay in the memory that kernels work on. One store for the daemon.
 *
 * Words    content = datatype, shape and bytes: immutable once it is published, counted by its holders; tensor = a name of a tenant for a
 *          content, with attributes; reader = a shard's own table of the tensors that its requests have named; generation = how
 *          often a supervisor has started this process, 1 without one.
 * Life     of an upload: ks_store_check (conditions, before the body) -> ks_store_reserve -> the bytes go to content->memory and to
 *          its hash (hash.h) -> ks_store_publish, or ks_content_release where it broke off. What had the name before is replaced in one step:
 *          its holders keep the old content.
 * Limits   options.limit_bytes of contents and forms, a tenant's bytes and tensors (its token); contents are counted once within a tenant.
 * Owner    a content belongs to its holders: names, requests, uploads, readers; the last one gives its memory back.
 * Threads  any, one lock: changes, lists, and look-ups that a reader has not kept. A reader is its shard's alone. */
#ifndef KS_STORE_H
#define KS_STORE_H
#include <stdatomic.h>

#include "kernserve/backend.h"
#include "kernserve/op.h"
#include "base/text.h"
#include "observe/metrics.h"

enum {
    KS_TENSOR_NAME_MAX = 128,
    KS_TENANT_NAME_MAX = 128,
    KS_ETAG_MAX = 64,     /* hex digits, without quotes; a stored output's is "g<generation>-<hex>" */
    KS_DIGEST_BYTES = 32, /* of SHA-256 */
    KS_TENSOR_KEYS_MAX = 4096,
    KS_TENSORS_MAX = 1 << 20, /* names of all tenants: each takes some 800 bytes of host memory */
    KS_RECORD_BYTES = 4 << 20
};

typedef struct ks_store ks_store;
typedef struct ks_reader ks_reader;

/* Of one of several workers: the table of names that one of them has alone (placed.h). */
struct ks_workers;
typedef struct ks_placed {
    struct ks_workers *workers; /* NULL: there is none */
    int row, pid;               /* this one's */
} ks_placed;

typedef struct ks_store_options {
    const ks_backend *backend; /* with `resident` */
    ks_device *device;
    uint64_t limit_bytes; /* 0: what the backend presets */
    int64_t ttl_s;        /* of a tensor whose PUT does not say; 0: for ever */
    int uploads_max;      /* at a time */
    uint64_t generation;
    int record_fd;           /* KS_RECORD_BYTES of memory that outlive this process: its names; -1: none */
    bool goes_together;      /* tensors whose ttl is over stay until they are deleted: other workers have them, too; */
    ks_placed placed;        /* but for those that this one has alone */
    int64_t (*now_ns)(void); /* NULL: ks_now_ns */
} ks_store_options;

/* Whose names they are. */
typedef struct ks_tenant {
    const char *name;        /* "": that of operators, and where there are no tokens */
    uint64_t bytes, tensors; /* quotas; 0: none */
    bool is_operator;
} ks_tenant;

typedef struct ks_content {
    /* fixed once published: */
    ks_tensor tensor; /* tensor.fixed: where it lies for kernels */
    ks_slot memory;   /* the backend's; in: where the host sees it, too */
    char etag[KS_ETAG_MAX + 1];
    unsigned char body_digest[KS_DIGEST_BYTES]; /* plain SHA-256 of the bytes as they were sent raw, for Repr-Digest; */
    bool has_body_digest;
    /* A form: the same rows, put as an operation would have them. Fixed once has_form is set. */
    const ks_op *form_op;
    ks_tensor form; /* form.fixed, form.pitch */
    ks_slot form_memory;
    size_t form_bytes; /* of that memory; 0: none */
    /* any thread, atomic: */
    _Atomic bool has_form;
    _Atomic int holders;
    /* the store's: */
    ks_store *store;
} ks_content;

/* A row of documents: a copy, without references. */
typedef struct ks_tensor_entry {
    char name[KS_TENSOR_NAME_MAX + 1];
    ks_tensor tensor; /* datatype, shape and bytes alone */
    char etag[KS_ETAG_MAX + 1];
    int64_t ttl_s, expires_in_s; /* 0: for ever */
    bool evictable, read_only;
    const ks_op *form_op; /* that it has a form for; NULL: none */
    bool lost;            /* a restart took its content: it has a name and an etag alone */
    uint64_t uses;        /* requests and GETs that named it */
    int held;             /* by requests and models now, beside the name */
    bool is_placed;       /* one of several workers has it alone, */
    int device;           /* that one's; */
    bool is_elsewhere;    /* another one, which alone knows its uses and what time it has */
} ks_tensor_entry;

/* What a PUT asks for beside the bytes. */
typedef struct ks_put {
    const ks_tenant *tenant;
    const char *name;
    int64_t ttl_s; /* -1: the preset */
    bool evictable, read_only;
    bool is_placed;       /* of several workers this one is to have it alone */
    uint32_t change;      /* of several workers, that it is a part of; 0: none */
    bool only_new;        /* If-None-Match: * */
    const char *if_match; /* ETag without quotes, "*": any; NULL: no condition */
} ks_put;

typedef enum ks_put_outcome { KS_PUT_CREATED, KS_PUT_REPLACED, KS_PUT_UNCHANGED } ks_put_outcome;

ks_status ks_store_open(const ks_store_options *options, ks_store **out, ks_error *error);
void ks_store_close(ks_store **store); /* no reader and no holder but names is left */
uint64_t ks_store_generation(const ks_store *store);

/* An upload takes one of uploads_max places while its body comes. KS_BUDGET. */
ks_status ks_store_begin_upload(ks_store *store, ks_error *error);
void ks_store_end_upload(ks_store *store);

/* [A-Za-z0-9_.-], 1 to 128 bytes, neither . nor - in front. KS_NAME. name need not be terminated. */
ks_status ks_tensor_name_check(const char *name, size_t length, ks_error *error);

/* Whether the PUT could be, as things are: KS_PRECONDITION, KS_READ_ONLY, KS_QUOTA (tensors); of several workers KS_PLACED: where the name
 * is does not change by a PUT. */
ks_status ks_store_check(ks_store *store, const ks_put *put, ks_error *error);
/* Memory for a content of that datatype and shape; the caller is its one holder. Evictable tensors go for it, least recently used
 * first. KS_RESIDENT_FULL, KS_QUOTA, KS_MEMORY: the sentence has both numbers and names the way out. what: its subject, as "tensor 'W'". */
ks_status ks_store_reserve(ks_store *store, const ks_tenant *tenant, const char *what, const ks_tensor *tensor,
                           ks_content **out, ks_error *error);
/* Memory for a form of an unpublished content, where there is room without others having to go: else it has none, and the op's plans
 * do without. Nor where the op would have it as it is. */
void ks_store_reserve_form(ks_store *store, const ks_tenant *tenant, ks_content *content, const ks_op *op);
/* Some rows of the form; the content's bytes are complete. *row: from where on; it moves. true: none is left, and it has the form. KS_DEVICE. */
ks_status ks_store_make_form(ks_store *store, ks_content *content, int64_t *row, bool *over, ks_error *error);
/* The content as an operation has it for an input: its form, where that is made for it; small ones and others that it reads so as they are. */
static inline const ks_tensor *ks_content_tensor(const ks_content *content, const ks_op *op, int input)
{
    const bool has_form = atomic_load_explicit(&content->has_form, memory_order_acquire);
    const bool as_it_is = op->inputs[input].small || op->inputs[input].as_it_is;
    return has_form && content->form_op == op && !as_it_is ? &content->form : &content->tensor;
}

/* The name is the content's from now on, whose bytes and etag are complete. Takes the caller's hold, whatever comes of it. Where the
 * tenant has a content with that etag already, that one stays and this one goes. count > 1: all or none, visible together; puts of
 * one tenant. entry: filled for each. KS_PRECONDITION, KS_READ_ONLY, KS_QUOTA. */
ks_status ks_store_publish_take(ks_store *store, const ks_put *puts, ks_content **contents, int count,
                                ks_put_outcome *outcomes, ks_tensor_entry *entries, ks_error *error);
/* The name for a content of the tenant's that is there, and the attributes anew. KS_CONTENT: none has that etag. */
ks_status ks_store_link(ks_store *store, const ks_put *put, const char *etag, ks_put_outcome *outcome,
                        ks_tensor_entry *entry, ks_error *error);
/* Whether these could be, as things are; nothing changes. Of workers, which change what they have together. */
ks_status ks_store_may_publish(ks_store *store, const ks_put *puts, int count, ks_error *error);
ks_status ks_store_may_link(ks_store *store, const ks_put *put, const char *etag, ks_content **out,
                            ks_error *error); /* out: held, so that it stays */
ks_status ks_store_may_delete(ks_store *store, const ks_tenant *tenant, const char *name, const char *if_match,
                              ks_error *error);
/* Whether the tenant has a content of that datatype and shape whose raw body had that SHA-256; its etag. For Expect with Repr-Digest. */
bool ks_store_has_body(ks_store *store, const ks_tenant *tenant, const unsigned char digest[KS_DIGEST_BYTES],
                       const ks_tensor *tensor, char etag[KS_ETAG_MAX + 1]);

/* The content of a name, held until ks_content_release. uses: counts as a use, and its ttl begins anew. entry: filled, or NULL.
 * KS_TENSOR: no such name; KS_LOST; of several workers KS_PLACED, KS_UNAVAILABLE: another one has it alone. */
ks_status ks_store_hold(ks_store *store, const ks_tenant *tenant, const char *name, bool uses, ks_content **out,
                        ks_tensor_entry *entry, ks_error *error);
void ks_content_release(ks_content **content); /* any thread */
/* One more holder beside those there are. */
static inline ks_content *ks_content_hold(ks_content *content)
{
    atomic_fetch_add_explicit(&content->holders, 1, memory_order_relaxed);
    return content;
}
/* An etag of its own, "g<generation>-<hex>": of a stored output, whose bytes the host does not see. */
void ks_content_label(ks_content *content);

/* A lost name goes as well. KS_TENSOR, KS_PRECONDITION (if_match, as in ks_put), KS_READ_ONLY. */
ks_status ks_store_delete(ks_store *store, const ks_tenant *tenant, const char *name, const char *if_match,
                          ks_error *error);
/* Of several workers: what this one has alone, or a name that was lost with another one. KS_UNAVAILABLE: all have it meanwhile. */
ks_status ks_store_delete_placed(ks_store *store, const ks_tenant *tenant, const char *name, const char *if_match,
                                 ks_error *error);
/* Entries of the tenant and preloaded ones whose names begin with prefix, by name, behind `after` ("": from the first), at most `most`.
 * more: there are others behind the last one. Returns how many. */
int ks_store_list(ks_store *store, const ks_tenant *tenant, const char *prefix, const char *after, int most,
                  ks_tensor_entry *out, bool *more);

/* Part of a list, as ks_store_list has it. */
typedef struct ks_list_part {
    const ks_tenant *tenant;
    const char *prefix, *after;
    int most;
} ks_list_part;
/* The same, and those that other workers have alone. */
int ks_store_list_all(ks_store *store, const ks_list_part *part, ks_tensor_entry *out, bool *more);

/* Of several workers, whether one has a name alone; and as ks_placed_find (placed.h). */
bool ks_store_has_placed(const ks_store *store);
int ks_store_placing(const ks_store *store, const char *tenant, const char *name, size_t length, int *row);

/* Tensors whose ttl is over go, but where options.goes_together is set. About once a second, on any thread, always the same. */
void ks_store_turn(ks_store *store, int64_t now_ns);

/* What several workers, which have the same, ask of each other: */

/* The tensor whose ttl was over first, and whose it is; false: there is none. */
bool ks_store_first_due(ks_store *store, char tenant[KS_TENANT_NAME_MAX + 1], char name[KS_TENSOR_NAME_MAX + 1]);
/* It has been used elsewhere: its ttl is over in so many seconds. */
void ks_store_prolong(ks_store *store, const char *tenant, const char *name, int64_t expires_in_s);
/* The name of a tenant, by any order that stays while nothing changes; false: past the last one. */
bool ks_store_tenant_at(ks_store *store, int index, char tenant[KS_TENANT_NAME_MAX + 1]);

typedef struct ks_store_stats {
    uint64_t tensors, bytes, form_bytes, limit_bytes, held_bytes, generation; /* bytes: without those of forms */
    uint64_t put_bytes, puts[6]; /* created, replaced, unchanged, linked, refused, aborted */
    uint64_t put_bucket[KS_BOUNDS + 1], put_ns;
    uint64_t gone[4];    /* delete, ttl, evicted, replaced */
    uint64_t lookups[3]; /* hit, unknown, lost */
} ks_store_stats;
void ks_store_read_stats(ks_store *store, ks_store_stats *out);
void ks_store_count_put(ks_store *store, bool aborted); /* a refused or broken upload */
void ks_store_time_put(ks_store *store, int64_t ns);    /* one that was stored */

/* --- a shard's table --------------------------------------------------------------------------------------------------- */

/* What its requests have named is kept, so that a look-up takes no lock while the name stays what it is. A content that has lost its name
 * leaves the reader by itself, at once or with the reader's last use of it. */
ks_reader *ks_reader_open(ks_store *store); /* NULL: no memory */
void ks_reader_close(ks_reader **reader);   /* nothing is held */
/* As ks_store_hold with a use. The content is held until ks_reader_release. name need not be terminated. */
ks_status ks_reader_hold(ks_reader *reader, const ks_tenant *tenant, const char *name, size_t length, ks_content **out,
                         ks_error *error);
void ks_reader_release(ks_reader *reader, ks_content **content);
#endif
