/* One piece of work as a lane runs it. ops_library.cu: on device memory, as for a copied request, by the op's own planner and its
 * kernels with their stamps; for bench_ops.cu, and as libks_bench_ops.so for compare_torch.py. ops_library_cpu.c: on the CPU, in the
 * calling thread, as a lane's worker does; as libks_bench_ops_cpu.so for compare_torch_cpu.py. So it is C, and every error is a sentence.
 *
 * Owns     what a lane has beside the request: workspace, counters, line; one set, so one stream is used at a time. On the CPU
 *          each thread has its own.
 * Threads  one; on the CPU any may launch. */
#ifndef KS_OPS_LIBRARY_H
#define KS_OPS_LIBRARY_H
#include "kernserve/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OPS_LABEL = 192 };

typedef struct ops_row {
    /* "softmax", "matmul", one that reduces: "sum", a norm: "layer_norm", a gather: "embedding", or a function of map: "gelu" */
    char op[16];
    char dtype[8];              /* "FP32"; "TF32": FP32, of which products may be less precise */
    char first[32], second[32]; /* shapes such as "8192x4096"; second "" but for matmul */
    char axis[16];              /* "-1", "0,2,3"; "" for matmul */
    char label[OPS_LABEL];      /* all of it, for people */
    char third[24];             /* of map; "" where it has no such input */
    char to[8];                 /* of map: the output's datatype; "": the function's */
    char parameters[40];        /* "axes=1,0", with a space between two; "": they follow from the op's name */
} ops_row;

/* A planned row. */
typedef struct ops_work {
    size_t in_bytes, out_bytes; /* memory that each side needs, pads included; both start on KS_ALIGNMENT */
    double bytes;               /* of inputs and output, each counted once */
    double flops;
    ks_kernel_info kernel_info;
    ks_spec spec;
    size_t workspace_bytes, counters;
    unsigned char algorithm[KS_ALGORITHM_BYTES];
} ops_work;

/* ops_rows.c: the same everywhere.
 * false: there is no row i. */
bool ops_row_at(int i, ops_row *out);
ks_status ops_spec_of(const ops_row *row, ks_spec *out, ks_error *error); /* resolved, tensors laid out */
void ops_measure(ops_work *work);                                         /* bytes and flops of its spec */
/* Where a tensor lies in its side; -1: there is none. */
long long ops_input_at(const ops_work *work, int input);
long long ops_output_at(const ops_work *work, int output);

/* The functions below return NULL, or why they could not; the text stays until the next call. */
const char *ops_open(void); /* device 0 of this process, or the CPU; measures the rate of copies */
double ops_copy_gbs(void);  /* bytes read + bytes written */
const char *ops_plan(const ops_row *row, ops_work *out);
const char *ops_plan_spec(const ks_spec *spec, ops_work *out); /* of a resolved one */
const struct ks_chip *ops_chip(void);                          /* this and the next two: of a GPU alone */
/* What a tuner tries for planned work, the planned way first. 0: there is one way. */
int ops_candidates(const ops_work *work, ks_algorithm *out, int most);
const char *ops_choose(ops_work *work, const ks_algorithm *algorithm);
/* in: the inputs at their offsets in the spec. Nothing is allocated or waited for, so a stream may be capturing; on the CPU the work
 * is done when it returns. */
const char *ops_launch(const ops_work *work, const void *in, void *out, void *stream);

#ifdef __cplusplus
}
#endif
#endif
