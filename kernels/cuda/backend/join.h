/* The copies of joined rows (join.cu): what the lane's graph and the emulated GPU launch before and behind the product. */
#ifndef KS_CUDA_JOIN_H
#define KS_CUDA_JOIN_H

#include "cuda/common/launch.cuh"

/* A side of all jobs of a launch. */
typedef struct ks_join_side {
    bool in;               /* from the jobs' slots to memory; else from memory to the slots, */
    bool last;             /* and behind the last output the flag is raised */
    unsigned char *memory; /* the rows, one behind the other */
    size_t row_bytes;
    size_t before; /* bytes of a row of the output in front of this one; 0: there is none */
    int rows;      /* of the bucket */
} ks_join_side;

/* Of work at memory, of whose rows so many are a bucket's: INPUT0, and an output. */
ks_join_side ks_cuda_join_in(const ks_spec *work, unsigned char *memory, int rows);
ks_join_side ks_cuda_join_out(const ks_spec *work, int output, unsigned char *memory, int rows);

/* Where each job's rows begin. */
void ks_cuda_join_rows(ks_job_table *table, const ks_batch *batch);
/* site: with a job table. early: the chip can begin a launch before the one in front of it has ended. */
cudaError_t ks_cuda_join_copy(const ks_site *site, const ks_join_side *side, bool early, cudaStream_t stream);

#endif
