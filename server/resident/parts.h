/* What the files of the store share. From the lowest up: tree.c, record.c names that outlive the process, placed.c names that one worker has, content.c contents and
 * their references, owners.c tenants, names and what readers keep of them, room.c memory for contents, store.c and reader.c the interface. */
#ifndef KS_RESIDENT_PARTS_H
#define KS_RESIDENT_PARTS_H
#include <pthread.h>
#include <stddef.h>

#include "resident/placed.h"
#include "resident/record.h"
#include "resident/store.h"
#include "resident/tree.h"

static const int64_t KS_SECOND_NS = 1000000000;

/* Whose names and contents they are. Goes with the last of them. */
typedef struct ks_owner {
    ks_node *names;             /* ks_tensor_name by name */
    ks_node *contents, *bodies; /* published ks_content_record by etag; those with a digest of the body by that */
    uint64_t bytes;             /* of contents, published or not */
    uint64_t tensors;           /* names with a content */
    uint64_t things;            /* names and contents */
    struct ks_owner *next;
    char name[KS_TENANT_NAME_MAX + 1];
} ks_owner;

typedef struct ks_content_record {
    ks_content content; /* first: its address is the record's */
    ks_owner *owner;
    ks_node by_etag, by_body;
    bool published;
    int names, names_firm; /* that lead here; those that are not evictable */
    int keeps;             /* readers that hold it */
} ks_content_record;

/* A content that a reader holds, once, for all entries that lead to it. */
typedef struct ks_kept {
    ks_content_record *record;
    _Atomic int uses;      /* of the reader's requests now; KS_GIVEN_UP: the reader's hold is gone */
    _Atomic bool orphaned; /* no name leads here: the hold goes with the last use */
    int entries;           /* the store's lock: that are not stale */
    int leads;             /* the reader's: entries, stale ones too */
    struct ks_kept *chain;
} ks_kept;
enum { KS_GIVEN_UP = -1 };

/* A name that a reader has looked up. */
typedef struct ks_reader_entry {
    struct ks_reader *reader;
    struct ks_tensor_name *name;  /* the store's lock; NULL: stale */
    struct ks_reader_entry *next; /* the store's lock: of the name, or of the reader's stale ones */
    _Atomic bool stale;
    /* written by the reader alone: */
    _Atomic uint64_t uses;
    _Atomic int64_t last_ns;
    ks_kept *kept;
    struct ks_reader_entry *chain;
    uint32_t hash;
    uint16_t tenant_length, name_length;
    char text[]; /* tenant and name, one behind the other */
} ks_reader_entry;

struct ks_reader {
    ks_store *store;
    ks_reader_entry **entries; /* by hash */
    ks_kept **kept;            /* by content; as many buckets */
    size_t buckets, count;
    _Atomic uint64_t hits;
    /* the store's lock: */
    ks_reader_entry *stale;
    struct ks_reader *next;
};

typedef struct ks_tensor_name {
    ks_node by_name; /* owner->names */
    ks_node by_due;  /* store->due, of placed ones due_alone: where it has a ttl */
    ks_node by_idle; /* store->idle: where it is evictable */
    ks_owner *owner;
    ks_content_record *record; /* NULL: lost */
    ks_reader_entry *entries;
    int64_t ttl_s, last_ns;  /* last_ns: of the last use that no reader counts */
    int64_t due_ns, idle_ns; /* its places in the trees: last use then, which may have come later since */
    uint64_t uses;
    bool has_due, has_idle; /* it is in them */
    bool evictable, read_only;
    bool placed; /* this worker has it alone */
    int slot;    /* of the record of names; -1: it had no room */
    uint16_t length;
    char text[]; /* terminated */
} ks_tensor_name;

struct ks_store {
    /* fixed after open: */
    ks_store_options options;
    uint64_t limit_bytes;
    /* any thread, atomic: */
    _Atomic uint64_t labels;
    _Atomic int uploads;
    _Atomic uint64_t puts_refused, puts_aborted;
    /* under lock: */
    pthread_mutex_t lock;
    ks_owner *owners;
    ks_owner *common; /* of names that all may read: tensors of the start */
    ks_node *due, *due_alone, *idle;
    ks_reader *readers;
    ks_name_record *record;
    uint64_t bytes;       /* of all contents, and of their forms */
    uint64_t form_bytes;  /* of these */
    uint64_t loose_bytes; /* of those that evictable names alone lead to */
    uint64_t names, tensors;
    uint64_t put_bytes, puts[KS_PUT_UNCHANGED + 2], gone[4], lookups[3];
    uint64_t put_bucket[KS_BOUNDS + 1], put_ns;
};
enum { KS_GONE_DELETE, KS_GONE_TTL, KS_GONE_EVICTED, KS_GONE_REPLACED };
enum { KS_LOOKUP_HIT, KS_LOOKUP_UNKNOWN, KS_LOOKUP_LOST };
enum { KS_PUTS_LINKED = KS_PUT_UNCHANGED + 1 };

/* --- content.c; the store's lock is held, but for ks_content_release and ks_content_label of store.h --- */

ks_content_record *ks_content_new(ks_store *store, ks_owner *owner,
                                  const ks_tensor *tensor); /* counted; NULL: no memory */
void ks_content_publish(ks_content_record *record);
/* With the lock: of an equal one that goes, the digest of its body. */
void ks_content_learn_body(ks_content_record *record, const ks_content *equal);
/* Likewise its form, which moves. */
void ks_content_learn_form(ks_content_record *record, ks_content *equal);
ks_content_record *ks_content_find(const ks_owner *owner, const char *etag);
ks_content_record *ks_content_find_body(const ks_owner *owner, const unsigned char digest[KS_DIGEST_BYTES],
                                        const ks_tensor *tensor);
void ks_content_count_name(ks_content_record *record, int names, int firm); /* more, or fewer, that lead to it */
void ks_content_drop(ks_content_record *record);                            /* one holder less */

/* --- owners.c; the lock is held --- */

ks_owner *ks_owner_find(const ks_store *store, const char *name);
ks_owner *ks_owner_make(ks_store *store, const char *name); /* NULL: no memory */
void ks_owner_sweep(ks_store *store);                       /* those without names and contents go */
ks_tensor_name *ks_name_find(const ks_owner *owner, const char *text, size_t length);
/* The tenant's, or one that all may read. NULL: neither. */
ks_tensor_name *ks_name_resolve(const ks_store *store, const ks_tenant *tenant, const char *text, size_t length);
/* The first name behind `after` ("": any) that begins with prefix. */
ks_tensor_name *ks_name_behind(const ks_owner *owner, const char *prefix, const char *after);
/* Without a place in any tree; free() it, or link it. NULL: no memory. */
ks_tensor_name *ks_name_new(const char *text, size_t length);
void ks_name_link(ks_store *store, ks_owner *owner, ks_tensor_name *name);
/* The name is the content's, which it holds, with these attributes. */
void ks_name_set(ks_store *store, ks_tensor_name *name, ks_content_record *record, const ks_put *put);
void ks_name_lose(ks_store *store, ks_tensor_name *name,
                  int64_t ttl_s); /* of an earlier generation: it has no content */
void ks_name_remove(ks_store *store, ks_tensor_name **name);
void ks_name_use(ks_store *store, ks_tensor_name *name);
/* name: what resolve found. KS_TENSOR: nothing. KS_LOST, and what ks_placed_explain says. text: what was asked for, of whom. */
ks_status ks_name_check(const ks_store *store, const ks_tensor_name *name, const ks_tenant *tenant, const char *text,
                        size_t length, ks_error *error);
void ks_name_forget_entry(ks_reader_entry *entry); /* of a name: it is stale, and its counts are the name's */
int64_t ks_name_last_ns(const ks_tensor_name *name);
void ks_name_fill(const ks_store *store, const ks_tensor_name *name, ks_tensor_entry *entry);
/* The name that comes first in a tree of times, at the time of its last use; NULL: there is none. placed: of those. */
ks_tensor_name *ks_name_first_due(ks_store *store, bool placed);
ks_tensor_name *ks_name_first_idle(ks_store *store);

#endif
