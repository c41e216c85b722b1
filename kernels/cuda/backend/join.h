/* The copies of joined rows, and of a chain's sides (join.cu): what the lane's graph and the emulated GPU launch before and behind the product, or a chain's steps. */
#ifndef KS_CUDA_JOIN_H
#define KS_CUDA_JOIN_H

#include "cuda/common/launch.cuh"

/* A tensor of all jobs of a launch. */
typedef struct ks_join_side {
    bool in;               /* from the jobs' slots to memory; else from memory to the slots, */
    bool first, last;      /* of an in side: the launch's start is stamped; of an out side: the flag is raised */
    unsigned char *memory; /* the rows, one behind the other */
    size_t row_bytes;
    int tensors;                      /* of the job's side that lie in front of this one, */
    size_t before[KS_INPUTS_MAX - 1]; /* and bytes of a row of each */
    int rows;                         /* of the bucket */
    int filled;                       /* of an in side: the last row stands again up to so many rows; 0: it does not */
    volatile const ks_completion
        *refusals; /* of the last out side: KS_COMPLETION_LINE whose status words the steps write; NULL: none do */
    volatile const ks_completion
        *steps; /* of the last out side: KS_COMPLETION_LINE that the steps have stamped; NULL: they have none */
    ks_completion *stamps; /* where the host looks for them */
} ks_join_side;

/* Of work at memory, of whose rows so many are a bucket's: an input that is the jobs' own, and an output. */
ks_join_side ks_cuda_join_in(const ks_spec *work, int input, unsigned char *memory, int rows);
ks_join_side ks_cuda_join_out(const ks_spec *work, int output, unsigned char *memory, int rows);

/* A whole side of one job that is alone. */
ks_join_side ks_cuda_join_whole(bool in, unsigned char *memory, size_t bytes);

/* Where each job's rows begin, of so many jobs from that one on. */
void ks_cuda_join_rows(ks_job_table *table, const ks_batch *batch, int from, int count);
/* site: with a job table. early: the chip can begin a launch before the one in front of it has ended. */
cudaError_t ks_cuda_join_copy(const ks_site *site, const ks_join_side *side, bool early, cudaStream_t stream);

#endif
