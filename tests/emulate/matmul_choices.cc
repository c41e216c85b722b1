/* What matmul's cost model says of random products on the chips of an H200 and an A100: a list that is compared with
 * matmul_choices.txt, because tune caches keep an algorithm's bytes, and a refit that is meant has to be seen.
 *
 *   matmul_choices          a line for each chip and datatype: products, candidates, and two hashes: of the candidates in their
 *                           order with their predicted times (six digits: a C library may differ in the last bit), and of what
 *                           a plan is made of
 *   matmul_choices COUNT    as many products, each candidate in full, with all bytes of its choice */
#include "cuda_runtime.h"

#include "cuda/matmul/plan.h"
#include "cuda/op.h"

#include <inttypes.h>
#include <stdio.h>

enum { PRODUCTS = 150, DATATYPES = 5 };
enum { TRANSPOSE_A, TRANSPOSE_B, ALPHA, ACTIVATION, PRECISION }; /* of the op's parameters */

extern const ks_cuda_op ks_matmul_cuda;

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* As many of each power of two; half of them near a multiple of 8, as sizes of services are. */
static int64_t draw_size(int bits)
{
    const int64_t top = (int64_t)1 << draw((uint64_t)bits + 1), size = top + (int64_t)draw((uint64_t)top);
    return size > 8 && draw(2) ? size / 8 * 8 : size;
}

static void set_shape(ks_tensor *tensor, ks_dtype dtype, const int64_t *batch, int rank, int64_t rows, int64_t columns)
{
    tensor->dtype = dtype;
    tensor->rank = rank + 2;
    for (int d = 0; d < rank; d++) tensor->dims[d] = batch[d];
    tensor->dims[rank] = rows;
    tensor->dims[rank + 1] = columns;
}

/* false: such a product is not allowed. */
static bool make_product(int datatype, ks_spec *spec)
{
    static const ks_dtype dtypes[DATATYPES] = {KS_FP16, KS_BF16, KS_FP32, KS_FP32, KS_FP64};
    const ks_dtype dtype = dtypes[datatype];
    const bool few = draw(3) == 0, small = draw(5) == 0;
    const int rank = small || draw(6) == 0 ? 1 + (int)draw(2) : 0;
    const int64_t m = few ? 1 + (int64_t)draw(24) : draw_size(small ? 6 : 12), n = draw_size(small ? 6 : 12),
                  k = draw_size(small ? 6 : 14), batch[2] = {draw_size(rank ? 8 : 0), draw_size(rank ? 3 : 0)};
    const int64_t one[2] = {1, 1}, *a_batch = rank && draw(8) == 0 ? one : batch;
    ks_error error;
    ks_spec_init(spec, ks_op_find("matmul", 6));
    spec->params[TRANSPOSE_A].i = draw(2);
    spec->params[TRANSPOSE_B].i = draw(2);
    spec->params[ALPHA].d = draw(2) ? 1 : 0.5;
    spec->params[ACTIVATION].i = draw(4);
    spec->params[PRECISION].i = datatype == 2;
    set_shape(&spec->in[0], dtype, a_batch, rank, spec->params[TRANSPOSE_A].i ? k : m,
              spec->params[TRANSPOSE_A].i ? m : k);
    set_shape(&spec->in[1], dtype, batch, draw(4) ? rank : 0, spec->params[TRANSPOSE_B].i ? n : k,
              spec->params[TRANSPOSE_B].i ? k : n);
    for (int i = 0; i < 2; i++)
        if (ks_tensor_measure(&spec->in[i], "INPUT", &error)) return false;
    ks_spec_layout(spec);
    return !spec->op->resolve(spec, &error);
}

static void add(uint64_t *hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) *hash = (*hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
}

static void add_rounded(uint64_t *hash, double us)
{
    char text[32];
    add(hash, text, (size_t)snprintf(text, sizeof text, "%.5e", us));
}

static void print_candidate(const ks_matmul_candidate *candidate, const ks_cuda_plan *plan)
{
    printf("  %-60s once %d batch %d workspace %zu counters %zu grid %lld threads %d cluster %d shared %zu\n   ",
           plan->kernel_info.kernel, plan->once, plan->batch_max, plan->workspace_bytes, plan->counters,
           (long long)plan->kernel_info.grid, plan->kernel_info.threads, plan->kernel_info.cluster,
           plan->kernel_info.shared_bytes);
    for (size_t i = 0; i < sizeof *candidate; i++) printf("%02x", ((const unsigned char *)candidate)[i]);
    printf("\n");
}

static void run(const char *name, const ks_chip *chip, int datatype, int products, bool full)
{
    static const char *const names[DATATYPES] = {"FP16", "BF16", "TF32", "FP32", "FP64"};
    static ks_matmul_candidate all[KS_MATMUL_CANDIDATES];
    uint64_t order = 0xCBF29CE484222325u, plans = order;
    long long candidates = 0, made = 0;
    seed = (uint64_t)datatype + 1;
    while (made < products) {
        ks_spec spec;
        ks_cuda_plan plan;
        ks_error error;
        if (!make_product(datatype, &spec)) continue;
        made++;
        const int count = ks_matmul_candidates(chip, &spec, all, KS_MATMUL_CANDIDATES);
        candidates += count;
        if (full) printf("%s %s %d candidates\n", name, names[datatype], count);
        for (int i = 0; i < count; i++) {
            ks_matmul_candidate_plan(chip, &spec, &all[i], &plan);
            if (full) print_candidate(&all[i], &plan);
            add(&order, &all[i], offsetof(ks_matmul_candidate, predicted_us));
            add_rounded(&order, all[i].predicted_us);
            add(&plans, &plan.workspace_bytes, sizeof plan.workspace_bytes);
            add(&plans, &plan.counters, sizeof plan.counters);
            add(&plans, &plan.kernel_info.shared_bytes, sizeof plan.kernel_info.shared_bytes);
        }
        if (ks_matmul_cuda.plan(chip, &spec, &plan, &error) == KS_OK)
            add(&plans, plan.algorithm, offsetof(ks_matmul_candidate, predicted_us));
    }
    printf("%s %s: %lld products, %lld candidates, order %016" PRIx64 ", plans %016" PRIx64 "\n", name, names[datatype],
           made, candidates, order, plans);
}

int main(int argc, char **argv)
{
    const int products = argc > 1 ? atoi(argv[1]) : (int)PRODUCTS;
    ks_chip h200 = {}, a100 = {};
    h200.capability = 90, h200.sms = 132, h200.threads_sm = 2048;
    h200.shared_sm = 228 << 10, h200.shared_optin = 227 << 10, h200.l2_bytes = 50 << 20;
    a100.capability = 80, a100.sms = 108, a100.threads_sm = 2048;
    a100.shared_sm = 164 << 10, a100.shared_optin = 163 << 10, a100.l2_bytes = 40 << 20;
    h200.workspace_bytes = a100.workspace_bytes = 64 << 20;
    printf("revision %016" PRIx64 "\n", ks_matmul_cuda.revision());
    for (ks_chip *chip : {&h200, &a100}) {
        ks_error error;
        emulate_chip_now = {chip->sms, chip->shared_sm, chip->shared_optin};
        if (ks_matmul_cuda.setup(chip, &error)) {
            fprintf(stderr, "%s\n", error.text);
            return 1;
        }
        for (int datatype = 0; datatype < DATATYPES; datatype++)
            run(chip == &h200 ? "H200" : "A100", chip, datatype, products, argc > 1);
    }
    return 0;
}
