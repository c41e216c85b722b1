/* What can run a spec: candidates, the cost model's first choice first. A tuner times them and may keep another one.
 *
 * A candidate is complete: ks_matmul_candidate_plan makes the plan that launches it, whatever its origin. */
#ifndef KS_MATMUL_PLAN_H
#define KS_MATMUL_PLAN_H

#include "kernserve/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ks_chip;
struct ks_cuda_plan;

enum { KS_MATMUL_CANDIDATES = 256, KS_MATMUL_LIBRARY = 255, KS_MATMUL_NARROW_MARK = 254 };
enum { KS_MATMUL_JOIN_LEAST = 2 }; /* rows of a joined product: a single row has another layout */

/* Same bytes, same bits of every result. Kept in a plan's choice. */
typedef struct ks_matmul_candidate {
    uint8_t table, kernel; /* of table.cuh; table KS_MATMUL_LIBRARY: cuBLASLt's, the rest is 0 */
    uint8_t swap_ab;       /* the transposed product is computed, with the operands' roles swapped */
    uint8_t cluster;       /* CTAs of a tile, a slice of K each, reduced in shared memory */
    uint8_t packed;        /* rows that do not start on 16 bytes are first copied to where they do */
    uint8_t joined;        /* one of a family's: the grid is that of a launch's rows */
    int16_t splits;        /* clusters of a tile, reduced in the workspace */
    int64_t k_slice, grid; /* values of K in a slice; CTAs */
    double predicted_us;
} ks_matmul_candidate;

/* spec must be resolved. Returns how many were written, at most `most`, by rising predicted_us; at least one if most >= 1. */
int ks_matmul_candidates(const struct ks_chip *chip, const ks_spec *spec, ks_matmul_candidate *out, int most);

/* Everything that a launch needs, from the candidate alone. */
void ks_matmul_candidate_plan(const struct ks_chip *chip, const ks_spec *spec, const ks_matmul_candidate *candidate,
                              struct ks_cuda_plan *out);

enum { KS_MATMUL_JOIN_BUCKETS = 9 }; /* of rows: 1, 2, 4 … KS_JOIN_ROWS_MAX */

/* What serves any number of rows over fixed operands, each row with the same bits (join.cu). Kept in a plan's choice. */
typedef struct ks_matmul_family {
    ks_matmul_candidate most; /* of as many rows as the spec has; its slices are all others' */
    uint8_t kernel[KS_MATMUL_JOIN_BUCKETS], swap_ab[KS_MATMUL_JOIN_BUCKETS];
} ks_matmul_family;

/* The spec has the most rows. false: there is none. */
bool ks_matmul_join(const struct ks_chip *chip, const ks_spec *spec, ks_matmul_family *out);
/* What a launch of so many rows runs. */
ks_matmul_candidate ks_matmul_join_candidate(const ks_matmul_family *family, int64_t rows);
void ks_matmul_join_plan(const struct ks_chip *chip, const ks_spec *spec, const ks_matmul_family *family,
                         struct ks_cuda_plan *out);

#ifdef __cplusplus
}
#endif
#endif
