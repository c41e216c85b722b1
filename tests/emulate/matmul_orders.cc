/* Every candidate of a few products on the emulated GPU, not only those that a tuner tries: each is right, and those that add in the
 * same order (mm_kernel.order) and the same slices give equal bits, which joined rows count on (matmul/join.cu). The emulated
 * tensor core adds in an order of its own, so that of the real one is bench/sweep_matmul --orders to compare.
 *
 *   matmul_orders [DATATYPE]    FP16, BF16, TF32, FP32 or FP64; else one of the shapes of each */
#include "cuda_runtime.h"

#include "matmul_ptx.h"

#include "cuda/matmul/candidates.h"

#include "cpu/convert.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <tuple>
#include <vector>

extern const ks_cuda_op ks_matmul_cuda;

static const char *const names[] = {"FP16", "BF16", "TF32", "FP32", "FP64"};
static const ks_dtype dtypes[] = {KS_FP16, KS_BF16, KS_FP32, KS_FP32, KS_FP64};
static const struct {
    int64_t m, k, n;
    bool transpose_a, transpose_b;
} shapes[] = {
    {70, 200, 200, false, false}, {16, 328, 72, false, true}, {33, 131, 65, false, false}, {260, 72, 130, true, false}};
static const size_t WORKSPACE = 64 << 20;

static uint64_t seed = 1;

static double draw_value()
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(seed >> 33) / (1 << 30) - 1;
}

static void put(unsigned char *at, ks_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case KS_FP16:
        ((uint16_t *)at)[i] = ks_double_to_fp16(value);
        break;
    case KS_BF16:
        ((uint16_t *)at)[i] = ks_double_to_bf16(value);
        break;
    case KS_FP32:
        ((float *)at)[i] = (float)value;
        break;
    default:
        ((double *)at)[i] = value;
    }
}

static double get(const unsigned char *at, ks_dtype dtype, int64_t i)
{
    switch (dtype) {
    case KS_FP16:
        return (double)ks_fp16_to_float(((const uint16_t *)at)[i]);
    case KS_BF16:
        return (double)ks_bf16_to_float(((const uint16_t *)at)[i]);
    case KS_FP32:
        return (double)((const float *)at)[i];
    default:
        return ((const double *)at)[i];
    }
}

struct product {
    ks_spec spec;
    ks_matmul_shape shape;
    unsigned char *in, *out;
    std::vector<double> sums, magnitudes;
};

static void make_product(size_t which, int datatype, product *p)
{
    ks_error error;
    const auto &s = shapes[which];
    ks_spec_init(&p->spec, ks_op_find("matmul", 6));
    p->spec.params[0].i = s.transpose_a;
    p->spec.params[1].i = s.transpose_b;
    p->spec.params[4].i = datatype == 2;
    const int64_t dims[2][2] = {{s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k},
                                {s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n}};
    for (int i = 0; i < 2; i++) {
        ks_tensor *t = &p->spec.in[i];
        t->dtype = dtypes[datatype];
        t->rank = 2;
        t->dims[0] = dims[i][0], t->dims[1] = dims[i][1];
        (void)ks_tensor_measure(t, "INPUT", &error);
    }
    ks_spec_layout(&p->spec);
    if (p->spec.op->resolve(&p->spec, &error)) exit(1);
    ks_matmul_shape_of(&p->spec, &p->shape);
    p->in = (unsigned char *)aligned_alloc(KS_ALIGNMENT, ks_align(ks_spec_in_bytes(&p->spec) + KS_PAD));
    p->out = (unsigned char *)aligned_alloc(KS_ALIGNMENT, ks_align(p->spec.out[0].size_bytes + KS_PAD));
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; at < ks_tensor_count(&p->spec.in[i]); at++)
            put(p->in + p->spec.in[i].offset, dtypes[datatype], at, draw_value());
}

static void multiply(int datatype, product *p)
{
    const ks_matmul_shape &s = p->shape;
    const unsigned char *a = p->in + p->spec.in[0].offset, *b = p->in + p->spec.in[1].offset;
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = 0, magnitude = 0;
            for (int64_t l = 0; l < s.k; l++) {
                const double x = get(a, dtypes[datatype], i * s.a_row + l * s.a_col) *
                                 get(b, dtypes[datatype], l * s.b_row + j * s.b_col);
                sum += x, magnitude += fabs(x);
            }
            p->sums.push_back(sum), p->magnitudes.push_back(magnitude);
        }
}

static bool is_right(int datatype, const product &p)
{
    static const double rounding[] = {0x1p-11, 0x1p-8, 0x1p-24, 0x1p-24, 0x1p-53},
                        growth[] = {0x1p-18, 0x1p-18, 0x1p-10, 0x1p-18, 0x1p-47};
    for (size_t i = 0; i < p.sums.size(); i++)
        if (!(fabs(get(p.out, dtypes[datatype], (int64_t)i) - p.sums[i]) <=
              rounding[datatype] * fabs(p.sums[i]) + growth[datatype] * p.magnitudes[i]))
            return false;
    return true;
}

static bool launch(const ks_chip *chip, const product &p, const ks_matmul_candidate &c, ks_cuda_plan *plan)
{
    static unsigned char *workspace = (unsigned char *)aligned_alloc(KS_ALIGNMENT, WORKSPACE);
    static uint32_t counters[KS_COUNTERS_MAX];
    ks_completion completion = {};
    uint32_t ticket = 0;
    ks_error error;
    ks_site site = {};
    ks_matmul_candidate_plan(chip, &p.spec, &c, plan);
    memset(p.out, 0xFF, p.spec.out[0].size_bytes);
    memset(workspace, 0xFF, plan->workspace_bytes);
    site.only = {p.in, p.out};
    site.completion = &completion;
    site.ticket = &ticket;
    site.counters = counters;
    site.workspace = workspace;
    const ks_status status = ks_matmul_cuda.launch(chip, &p.spec, plan->algorithm, site, 1, NULL, &error);
    if (status) printf("%s: %s\n", plan->kernel_info.kernel, error.text);
    for (uint32_t counter : counters)
        if (counter) return false;
    return !status;
}

typedef std::tuple<int, int, int, int, int64_t> order; /* table, order, cluster, splits, slice */
typedef std::pair<std::string, std::vector<unsigned char>> result;

static int faults, compared;

static void run(const ks_chip *chip, size_t which, int datatype)
{
    static ks_matmul_candidate all[KS_MATMUL_CANDIDATES];
    std::map<order, result> first;
    product p = {};
    make_product(which, datatype, &p);
    multiply(datatype, &p);
    const int count = ks_matmul_candidates(chip, &p.spec, all, KS_MATMUL_CANDIDATES);
    for (int i = 0; i < count; i++) {
        ks_cuda_plan plan;
        const ks_matmul_candidate &c = all[i];
        const bool launched = launch(chip, p, c, &plan), right = launched && is_right(datatype, p);
        if (!right) {
            printf("%s %zu: %s is wrong\n", names[datatype], which, plan.kernel_info.kernel);
            faults++;
            continue;
        }
        const int sums = mm_tables[c.table]->rows[c.kernel].layout[1][1].order;
        const result here = {plan.kernel_info.kernel, {p.out, p.out + p.spec.out[0].size_bytes}};
        if (!sums) continue;
        const auto found = first.insert({{c.table, sums, c.cluster, c.splits, c.k_slice}, here});
        compared += !found.second;
        if (found.first->second.second == here.second) continue;
        printf("%s %zu: %s and %s differ\n", names[datatype], which, here.first.c_str(),
               found.first->second.first.c_str());
        faults++;
    }
    printf("%s %zu: %d candidates, %zu orders\n", names[datatype], which, count, first.size());
    free(p.in);
    free(p.out);
}

int main(int argc, char **argv)
{
    ks_chip chip = {};
    ks_error error;
    chip.capability = 90, chip.sms = 132, chip.threads_sm = 2048;
    chip.shared_sm = 228 << 10, chip.shared_optin = 227 << 10, chip.l2_bytes = 50 << 20;
    chip.workspace_bytes = WORKSPACE;
    emulate_chip_now = {chip.sms, chip.shared_sm, chip.shared_optin};
    if (ks_matmul_cuda.setup(&chip, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const size_t now = (size_t)time(NULL); /* others from run to run */
    for (int datatype = 0; datatype < 5; datatype++)
        for (size_t which = 0; which < sizeof shapes / sizeof *shapes; which++)
            if (argc < 2 ? (which + (size_t)datatype + now) % (sizeof shapes / sizeof *shapes) == 0
                         : strcmp(argv[1], names[datatype]) == 0)
                run(&chip, which, datatype);
    printf("%d pairs compared, %d faults\n", compared, faults);
    return faults || !compared;
}
