/* The family of joined rows: a kernel for each number of rows over fixed operands, all of which give a row the same bits.
 *
 * Bits    of a row are those of its sums, so of the order in which products are added: what multiplies and the planes of a stage
 *         (mm_kernel.order), and the slices of K. A tile's extents, and which operand's rows it has, add nothing to it. So a
 *         family is an order and slices; a bucket of rows has the fastest kernel of that order.
 * Choice  by the predicted times at the numbers of rows below, each over the best family's there: the least sum of fourth
 *         powers, so that a number that is served badly outweighs several that are served a little better.
 * Left    kernels without an order: strips and gemv's, whose warps take K in turns, and batches. */
#include "cuda/matmul/candidates.h"

#include <string.h>

static const int64_t scored[] = {KS_MATMUL_JOIN_LEAST, 4, 16, 64, 128, 256};
enum { SCORED = sizeof scored / sizeof *scored };

/* The product of so many rows, of the spec's most. */
typedef struct mm_some_rows {
    ks_spec spec;
    mm_problem problem;
} mm_some_rows;

static void set_rows(const ks_chip *chip, const ks_spec *spec, int64_t rows, mm_some_rows *out)
{
    const int64_t most = spec->in[0].dims[0];
    if (rows < KS_MATMUL_JOIN_LEAST) rows = KS_MATMUL_JOIN_LEAST;
    ks_spec_copy(&out->spec, spec);
    out->spec.in[0].dims[0] = out->spec.out[0].dims[0] = rows < most ? rows : most;
    out->problem = mm_problem_of(chip, &out->spec);
}

static int order_of(const ks_matmul_candidate *c)
{
    return mm_tables[c->table]->rows[c->kernel].layout[1][1].order;
}

static bool same_family(const ks_matmul_candidate *a, const ks_matmul_candidate *b)
{
    return a->table == b->table && a->packed == b->packed && order_of(a) == order_of(b) && a->cluster == b->cluster &&
           a->splits == b->splits && a->k_slice == b->k_slice;
}

/* The family's fastest kernel for the rows; returns its time, 0: none can. */
static double find_kernel(const mm_problem *p, ks_matmul_candidate c, uint8_t *kernel, uint8_t *swap_ab)
{
    const int order = order_of(&c);
    double least = 0;
    for (int row = 0; row < mm_tables[c.table]->count; row++)
        for (int swapped = 0; swapped < 2; swapped++) {
            c.kernel = (uint8_t)row;
            c.swap_ab = (uint8_t)swapped;
            if (order_of(&c) != order) continue;
            const mm_fit fit = mm_fit_to(p, &c);
            const double us = mm_can(p, &fit) ? mm_predict_us(p, &fit) : 0;
            if (us <= 0 || (least > 0 && us >= least)) continue;
            least = us;
            *kernel = c.kernel;
            *swap_ab = c.swap_ab;
        }
    return least;
}

/* false: some number of rows has no kernel. */
static bool find_times(const mm_some_rows *some, const ks_matmul_candidate *c, double *us)
{
    uint8_t kernel, swap_ab;
    for (int i = 0; i < SCORED; i++) {
        us[i] = find_kernel(&some[i].problem, *c, &kernel, &swap_ab);
        if (us[i] <= 0) return false;
    }
    return true;
}

static double score_of(const double *us, const double *least)
{
    double score = 0;
    for (int i = 0; i < SCORED; i++) {
        const double square = us[i] / least[i] * (us[i] / least[i]);
        score += square * square;
    }
    return score;
}

/* Of each family among the candidates the first one, in their place. Returns how many. */
static int list_families(ks_matmul_candidate *all, int count)
{
    int families = 0;
    for (int i = 0; i < count; i++) {
        int at = 0;
        while (at < families && !same_family(&all[at], &all[i])) at++;
        if (at == families && order_of(&all[i])) all[families++] = all[i];
    }
    return families;
}

static int choose_family(const mm_some_rows *some, const ks_matmul_candidate *all, int families)
{
    double us[KS_MATMUL_CANDIDATES][SCORED], least[SCORED] = {};
    bool serves[KS_MATMUL_CANDIDATES];
    int best = -1;
    for (int f = 0; f < families; f++) {
        serves[f] = find_times(some, &all[f], us[f]);
        for (int i = 0; serves[f] && i < SCORED; i++)
            if (least[i] <= 0 || us[f][i] < least[i]) least[i] = us[f][i];
    }
    for (int f = 0; f < families; f++)
        if (serves[f] && (best < 0 || score_of(us[f], least) < score_of(us[best], least))) best = f;
    return best;
}

bool ks_matmul_join(const ks_chip *chip, const ks_spec *spec, ks_matmul_family *out)
{
    ks_matmul_candidate all[KS_MATMUL_CANDIDATES];
    mm_some_rows some[SCORED];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < SCORED; i++) set_rows(chip, spec, scored[i], &some[i]);
    const int families = list_families(all, ks_matmul_candidates(chip, spec, all, KS_MATMUL_CANDIDATES));
    const int best = choose_family(some, all, families);
    if (best < 0) return false;
    for (int bucket = 0; bucket < KS_MATMUL_JOIN_BUCKETS; bucket++) {
        set_rows(chip, spec, (int64_t)1 << bucket, &some[0]);
        if (find_kernel(&some[0].problem, all[best], &out->kernel[bucket], &out->swap_ab[bucket]) <= 0) return false;
    }
    out->most = all[best];
    out->most.joined = 1;
    out->most = ks_matmul_join_candidate(out, spec->in[0].dims[0]);
    return true;
}

ks_matmul_candidate ks_matmul_join_candidate(const ks_matmul_family *family, int64_t rows)
{
    ks_matmul_candidate c = family->most;
    const int bucket = ks_bucket((int)rows);
    c.kernel = family->kernel[bucket];
    c.swap_ab = family->swap_ab[bucket];
    return c;
}

void mm_join_needs(const ks_chip *chip, const ks_spec *spec, const ks_matmul_family *family, size_t *workspace_bytes,
                   size_t *counters)
{
    mm_some_rows some;
    *workspace_bytes = *counters = 0;
    for (int bucket = 0; bucket < KS_MATMUL_JOIN_BUCKETS; bucket++) {
        set_rows(chip, spec, (int64_t)1 << bucket, &some);
        const ks_matmul_candidate c = ks_matmul_join_candidate(family, some.spec.in[0].dims[0]);
        const mm_fit fit = mm_fit_to(&some.problem, &c);
        const size_t bytes = mm_workspace_bytes(&some.problem, &fit), words = mm_counters(&some.problem, &fit);
        if (bytes > *workspace_bytes) *workspace_bytes = bytes;
        if (words > *counters) *counters = words;
    }
}
