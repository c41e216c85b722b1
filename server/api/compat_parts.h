/* What compat.c (a job's life, its work and response) and compat_read.c (its request) share. Nothing outside of these
 * includes it. */
#ifndef KS_COMPAT_PARTS_H
#define KS_COMPAT_PARTS_H
#include "api/compat.h"
#include "codec/inflate.h"

enum { KS_COMPAT_BODY_MAX = 16 << 20, KS_COMPAT_TENSORS = 2, KS_COMPAT_ID_MAX = 1024 };

/* Elements of an input or an output: bytes as on the wire. */
typedef struct ks_compat_tensor {
    bool present;
    int rank;
    int64_t dims[2];
    size_t count;
    ks_text bytes;
} ks_compat_tensor;

typedef struct ks_compat_wish {
    bool wanted, binary;
    ks_window window;
} ks_compat_wish;

struct ks_compat_job {
    const ks_model *model;
    const ks_compat *compat;
    int64_t json_length; /* -1: the whole body */
    bool non_finite_error;
    ks_inflate *inflate;
    ks_text body;
    size_t taken; /* of the body, by JSON and blobs */
    ks_compat_tensor in[KS_COMPAT_TENSORS], out[KS_COMPAT_TENSORS];
    ks_compat_wish wish[KS_COMPAT_TENSORS];
    size_t id_length;
    char id[KS_COMPAT_ID_MAX];
};

extern const char *const ks_compat_inputs[KS_COMPAT_TENSORS], *const ks_compat_outputs[KS_COMPAT_TENSORS];

ks_status ks_compat_no_memory(ks_error *error);
/* Reads the body: inputs and what is wanted. Windows of wishes are held, whatever it returns. */
ks_status ks_compat_read(ks_compat_job *job, ks_regions *regions, ks_error *error);
#endif
