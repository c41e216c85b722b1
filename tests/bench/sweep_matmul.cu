/* Matmul's candidates, all of them, beside what the cost model says: readings to fit model.cu to, and to judge it by.
 *
 *   sweep_matmul SEED SECONDS [DATATYPE]   shapes drawn from the regimes below, as many as SECONDS allow. A line for each shape,
 *                                          `c` for each own candidate (table kernel swap_ab cluster splits packed k_slice, the
 *                                          model's us, us), `l` for each of cuBLASLt's, `s` with pick, own best and library
 *   sweep_matmul --shapes DATATYPE EPILOGUE MxKxN...   these shapes; EPILOGUE: plain, gelu (bias and gelu), residual (bias and residual)
 *   sweep_matmul --join SECONDS [KxN...]   joined rows: the family's kernel for a number of rows beside the best free choice
 *   sweep_matmul --orders [DATATYPE]       which candidates give equal bits: outputs of all of them, by order of sums and slices
 *
 * Candidates that the model takes for three times as long as its pick are left out, but for the first of each kernel; so are
 * kernels from row KS_ROWS on, where that is set. Cold, as in compare_cublaslt: a graph of launches on one set of buffers after the other, together beyond the L2 cache. The least of
 * three replays; of those within 12 % of the best, the pick and the library's best the median of five more, in turns. */
#include "bench_sets.cuh"
#include "cuda/matmul/candidates.h"
#include "cuda/matmul/cublaslt.cuh"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAUNCHES_LEAST = 6, LAUNCHES_MOST = 24, TIMED_MOST = 400, FINALISTS_MOST = 16, FINAL_ROUNDS = 5 };
static const double GRAPH_US = 250, LEFT_OUT = 3, NEAR = 1.12, LONGEST_US = 200;

static double seconds()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- shapes ---------------------------------------------------------------------------------------------------------- */

typedef enum epilogue { PLAIN, GELU, RESIDUAL } epilogue;

typedef struct shape {
    const char *regime;
    int64_t m, k, n;
    bool transpose_a, transpose_b;
    epilogue then = PLAIN;
} shape;

static uint64_t seed;

static int64_t draw(int64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)below);
}

/* As many of each size between, on a logarithmic scale; most are multiples of 64 or of 8. */
static int64_t draw_size(double least, double most)
{
    const double size = exp(log(least) + (log(most) - log(least)) * (double)draw(1 << 20) / (1 << 20));
    const int64_t by[] = {64, 64, 64, 8, 8, 8, 8, 1}, step = size < 64 ? 1 : by[draw(8)];
    const int64_t rounded = ((int64_t)size + step / 2) / step * step;
    return rounded < 1 ? 1 : rounded;
}

static int64_t one_of(const int64_t *values, int count)
{
    return values[draw(count)];
}

static shape draw_shape()
{
    static const int64_t few[] = {2, 4, 16, 64, 128, 256}, wide[] = {1024, 2048, 4096, 8192, 1536, 5120, 11008};
    shape s = {"large", draw_size(256, 4096), draw_size(1000, 1536), draw_size(512, 4096), false, false};
    switch (draw(7)) {
    case 0:
        s.n = draw_size(1000, 1536), s.k = draw_size(512, 4096);
        break;
    case 1:
        s.n = draw_size(1000, 1536), s.m = draw_size(900, 1600);
        break;
    case 2:
        s = {"kheavy", draw_size(16, 256), draw_size(8192, 100000), draw_size(64, 160), false, false};
        break;
    case 3:
        s = {"m128", draw_size(96, 192), draw_size(1024, 8192), draw_size(1024, 8192), false, false};
        break;
    case 4:
        s = {"mid", draw_size(17, 95), draw_size(1024, 11008), draw_size(1024, 11008), false, false};
        break;
    case 5:
        s = {"rows", one_of(few, 6), one_of(wide, 7), one_of(wide, 7), false, false};
        break;
    default:
        if (draw(2)) s = {"any", draw_size(64, 4096), draw_size(64, 4096), draw_size(64, 4096), false, false};
    }
    const int64_t layout = draw(10);
    s.transpose_b = layout < 2;
    s.transpose_a = layout == 2;
    return s;
}

static void set_tensor(ks_tensor *t, ks_dtype dtype, int64_t rows, int64_t columns)
{
    t->dtype = dtype;
    t->rank = 2;
    t->dims[0] = rows;
    t->dims[1] = columns;
}

static void make_spec(const shape *s, const char *dtype, ks_spec *spec)
{
    const bool tf32 = strcmp(dtype, "TF32") == 0;
    ks_dtype is = KS_FP32;
    ks_error error;
    if (!tf32 && !ks_dtype_find(dtype, strlen(dtype), &is)) die(dtype, "no such datatype");
    memset(spec, 0, sizeof *spec);
    ks_spec_init(spec, ks_op_find("matmul", 6));
    spec->params[0].i = s->transpose_a;
    spec->params[1].i = s->transpose_b;
    spec->params[4].i = tf32;
    set_tensor(&spec->in[0], is, s->transpose_a ? s->k : s->m, s->transpose_a ? s->m : s->k);
    set_tensor(&spec->in[1], is, s->transpose_b ? s->n : s->k, s->transpose_b ? s->k : s->n);
    if (s->then != PLAIN) {
        spec->in[KS_MATMUL_BIAS] = {};
        spec->in[KS_MATMUL_BIAS].dtype = is;
        spec->in[KS_MATMUL_BIAS].rank = 1;
        spec->in[KS_MATMUL_BIAS].dims[0] = s->n;
        spec->given |= 1u << KS_MATMUL_BIAS;
    }
    if (s->then == GELU) spec->params[KS_MATMUL_ACTIVATION].i = KS_MATMUL_GELU;
    if (s->then == RESIDUAL) {
        set_tensor(&spec->in[KS_MATMUL_RESIDUAL], is, s->m, s->n);
        spec->given |= 1u << KS_MATMUL_RESIDUAL;
    }
    for (int i = 0; i < KS_INPUTS_MAX; i++)
        if (ks_has_input(spec, i) && ks_tensor_measure(&spec->in[i], "INPUT", &error)) die("shape", error.text);
    ks_spec_layout(spec);
    if (spec->op->resolve(spec, &error)) die("shape", error.text);
}

/* --- one candidate --------------------------------------------------------------------------------------------------- */

typedef struct timed {
    bool library;
    ks_matmul_candidate own;
    ks_algorithm algorithm; /* of the library's */
    char kernel[sizeof(((ks_kernel_info *)0)->kernel)];
    double us;
} timed;

static void use_plan(ops_work *work, const ks_cuda_plan *plan)
{
    work->kernel_info = plan->kernel_info;
    work->workspace_bytes = ks_align(plan->workspace_bytes);
    work->counters = plan->counters;
    memcpy(work->algorithm, plan->algorithm, sizeof work->algorithm);
}

static const char *use(ops_work *work, const timed *t)
{
    ks_cuda_plan plan;
    if (t->library) return ops_choose(work, &t->algorithm);
    ks_matmul_candidate_plan(ops_chip(), &work->spec, &t->own, &plan);
    use_plan(work, &plan);
    return NULL;
}

static const char *launch_set(const sets *s, int at)
{
    unsigned char *in = s->memory + s->bytes * (size_t)(at % s->count);
    return ops_launch(&s->work, in, in + s->work.in_bytes, stream);
}

/* Of many launches; NULL: it cannot. */
static cudaGraphExec_t make_graph(const sets *s, int launches)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    const char *why = launch_set(s, 0);
    if (!why) {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < launches && !why; i++) why = launch_set(s, i);
        const cudaError_t code = cudaStreamEndCapture(stream, &graph);
        if (!why && code != cudaSuccess) why = cudaGetErrorString(code);
    }
    if (!why) {
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphUpload(exec, stream));
    } else {
        fprintf(stderr, "%s is out: %s\n", s->work.kernel_info.kernel, why);
        cudaGetLastError();
    }
    if (graph) CHECK(cudaGraphDestroy(graph));
    return exec;
}

static double replay_us(cudaGraphExec_t exec, int launches)
{
    float ms = 0;
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return (double)ms * 1000 / launches;
}

static int launches_of(double us)
{
    const int launches = (int)(GRAPH_US / us);
    return launches < LAUNCHES_LEAST ? (int)LAUNCHES_LEAST : launches > LAUNCHES_MOST ? (int)LAUNCHES_MOST : launches;
}

/* The least of three replays; 0: it cannot. */
static double time_once(const sets *s, double guess_us)
{
    const int launches = launches_of(guess_us);
    cudaGraphExec_t exec = make_graph(s, launches);
    if (!exec) return 0;
    CHECK(cudaGraphLaunch(exec, stream));
    double least = 0;
    for (int i = 0; i < 3; i++) {
        const double us = replay_us(exec, launches);
        if (i == 0 || us < least) least = us;
    }
    CHECK(cudaGraphExecDestroy(exec));
    return least;
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In turns, so that a clock that drifts hurts all alike; the median of each becomes its us. */
static void time_finalists(sets *s, timed *const *finalists, int count)
{
    cudaGraphExec_t exec[FINALISTS_MOST];
    double us[FINALISTS_MOST][FINAL_ROUNDS];
    int launches[FINALISTS_MOST];
    for (int i = 0; i < count; i++) {
        const char *why = use(&s->work, finalists[i]);
        launches[i] = launches_of(finalists[i]->us);
        exec[i] = why ? NULL : make_graph(s, launches[i]);
    }
    for (int round = 0; round < FINAL_ROUNDS; round++)
        for (int i = 0; i < count; i++)
            if (exec[i]) {
                CHECK(cudaGraphLaunch(exec[i], stream));
                us[i][round] = replay_us(exec[i], launches[i]);
            }
    for (int i = 0; i < count; i++) {
        if (!exec[i]) continue;
        qsort(us[i], FINAL_ROUNDS, sizeof us[i][0], rising);
        finalists[i]->us = us[i][FINAL_ROUNDS / 2];
        CHECK(cudaGraphExecDestroy(exec[i]));
    }
}

/* --- all candidates of a shape --------------------------------------------------------------------------------------- */

static bool left_out(const ks_matmul_candidate *c)
{
    const char *rows = getenv("KS_ROWS");
    return rows && c->kernel >= atoi(rows);
}

/* The model's order; what is far behind is left out, but for the first of each kernel in each orientation. */
static int list_own(const ks_spec *spec, timed *out)
{
    static ks_matmul_candidate all[KS_MATMUL_CANDIDATES];
    bool seen[2][2][MM_TABLES][256] = {};
    const int count = ks_matmul_candidates(ops_chip(), spec, all, KS_MATMUL_CANDIDATES);
    int kept = 0;
    for (int i = 0; i < count; i++) {
        bool *known = &seen[all[i].packed][all[i].swap_ab][all[i].table][all[i].kernel];
        if (left_out(&all[i]) || (*known && all[i].predicted_us > LEFT_OUT * all[0].predicted_us)) continue;
        *known = true;
        out[kept].library = false;
        out[kept].own = all[i];
        out[kept++].us = all[i].predicted_us;
    }
    return kept;
}

static int list_library(const ops_work *work, timed *out, double guess_us)
{
    static ks_algorithm all[KS_CANDIDATES_MAX];
    const int count = ops_candidates(work, all, KS_CANDIDATES_MAX);
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (all[i].algorithm[0] != KS_MATMUL_LIBRARY) continue;
        out[kept].library = true;
        out[kept].algorithm = all[i];
        out[kept++].us = guess_us;
    }
    return kept;
}

/* Times all; those that cannot run have 0. The first own one is the pick. */
static int time_all(sets *s, timed *all)
{
    int count = list_own(&s->work.spec, all), finalists = 0;
    timed *last[FINALISTS_MOST];
    count += list_library(&s->work, all + count, all[0].own.predicted_us);
    double least[2] = {};
    for (int i = 0; i < count; i++) {
        timed *t = &all[i];
        const char *why = use(&s->work, t);
        t->us = why ? 0 : time_once(s, t->us);
        memcpy(t->kernel, s->work.kernel_info.kernel, sizeof t->kernel);
        double *best = &least[t->library];
        if (t->us > 0 && (*best <= 0 || t->us < *best)) *best = t->us;
    }
    for (int i = 0; i < count && finalists < FINALISTS_MOST; i++)
        if (all[i].us > 0 && (i == 0 || all[i].us < (all[i].library ? 1.02 : NEAR) * least[all[i].library]))
            last[finalists++] = &all[i];
    time_finalists(s, last, finalists);
    return count;
}

static const timed *best_of(const timed *all, int count, bool library)
{
    const timed *best = NULL;
    for (int i = 0; i < count; i++)
        if (all[i].library == library && all[i].us > 0 && (!best || all[i].us < best->us)) best = &all[i];
    return best;
}

/* --- the sweep ------------------------------------------------------------------------------------------------------- */

typedef struct mean {
    const char *regime;
    double pick, library; /* sums of logarithms */
    double worst;
    int shapes, others; /* others: which the library can do */
} mean;

static void add_mean(mean *means, const char *regime, double pick, double library)
{
    mean *m = means;
    while (m->regime && strcmp(m->regime, regime) != 0) m++;
    m->regime = regime;
    m->pick += log(pick);
    m->shapes++;
    if (pick > m->worst) m->worst = pick;
    if (library <= 0) return;
    m->library += log(library);
    m->others++;
}

static void print_all(const shape *sh, const char *dtype, const timed *all, int count, mean *means)
{
    const timed *own = best_of(all, count, false), *library = best_of(all, count, true);
    for (int i = 0; i < count; i++) {
        const ks_matmul_candidate *c = &all[i].own;
        if (all[i].library)
            printf("l %.3f %s\n", all[i].us, all[i].kernel);
        else
            printf("c %d %d %d %d %d %d %lld %.3f %.3f %s\n", c->table, c->kernel, c->swap_ab, c->cluster, c->splits,
                   c->packed, (long long)c->k_slice, c->predicted_us, all[i].us, all[i].kernel);
    }
    if (!own || all[0].us <= 0) return;
    const double pick = all[0].us / own->us, ratio = library ? library->us / own->us : 0;
    printf("s %s %s %lldx%lldx%lld%s%s pick %.2f own %.2f lt %.2f pick/own %.3f lt/own %.3f | %s | %s | %s\n",
           sh->regime, dtype, (long long)sh->m, (long long)sh->k, (long long)sh->n, sh->transpose_a ? " ta" : "",
           sh->transpose_b ? " tb" : "", all[0].us, own->us, library ? library->us : 0, pick, ratio, all[0].kernel,
           own->kernel, library ? library->kernel : "-");
    add_mean(means, sh->regime, pick, ratio);
    add_mean(means, "all", pick, ratio);
    fflush(stdout);
}

/* false: it is no shape for this: it cannot be planned, or takes too long. */
static bool sweep_shape(const shape *sh, const char *dtype, mean *means)
{
    static timed all[TIMED_MOST];
    sets s;
    ks_spec spec;
    memset(&s, 0, sizeof s);
    make_spec(sh, dtype, &spec);
    if (ops_plan_spec(&spec, &s.work)) return false;
    ks_matmul_candidate pick;
    if (ks_matmul_candidates(ops_chip(), &spec, &pick, 1) < 1 || pick.predicted_us > LONGEST_US) return false;
    printf("shape %s %lld %lld %lld %d %d %s\n", dtype, (long long)sh->m, (long long)sh->k, (long long)sh->n,
           sh->transpose_a, sh->transpose_b, sh->regime);
    open_sets(&s, SETS_MOST);
    const int count = time_all(&s, all);
    print_all(sh, dtype, all, count, means);
    CHECK(cudaFree(s.memory));
    return true;
}

static void sweep(const char *dtype, double until)
{
    mean means[16] = {};
    while (seconds() < until) {
        const shape sh = draw_shape();
        sweep_shape(&sh, dtype, means);
    }
    printf("%-8s %6s %16s %10s %16s\n", "regime", "shapes", "pick / own best", "worst", "lt / own best");
    for (const mean *m = means; m->regime; m++)
        printf("%-8s %6d %16.3f %10.3f %16.3f\n", m->regime, m->shapes, exp(m->pick / m->shapes), m->worst,
               m->others ? exp(m->library / m->others) : 0);
}

static void sweep_given(const char *dtype, const char *then, char **texts)
{
    static const char *const epilogues[] = {"plain", "gelu", "residual"};
    mean means[16] = {};
    shape sh = {"given", 0, 0, 0, false, false};
    while (strcmp(then, epilogues[sh.then]) != 0) {
        if (sh.then == RESIDUAL) die(then, "plain, gelu or residual");
        sh.then = (epilogue)(sh.then + 1);
    }
    for (; *texts; texts++) {
        long long m, k, n;
        if (sscanf(*texts, "%lldx%lldx%lld", &m, &k, &n) != 3) die(*texts, "MxKxN");
        sh.m = m, sh.k = k, sh.n = n;
        if (!sweep_shape(&sh, dtype, means)) die(*texts, "cannot be planned, or takes too long");
    }
}

/* --- joined rows ----------------------------------------------------------------------------------------------------- */

/* The family's kernel for so many rows. */
static double time_family(sets *s, const ks_matmul_family *family, const ks_spec *most, double guess_us)
{
    ks_cuda_plan plan;
    ks_matmul_join_plan(ops_chip(), most, family, &plan);
    use_plan(&s->work, &plan);
    return time_once(s, guess_us);
}

static void run_rows(int64_t rows, int64_t k, int64_t n, const ks_matmul_family *family, const ks_spec *most,
                     double *worst)
{
    static timed all[TIMED_MOST];
    sets s;
    ks_spec spec, joined;
    ks_cuda_plan plan;
    const shape sh = {"join", rows, k, n, false, false}, at_least = {"join", rows < 2 ? 2 : rows, k, n, false, false};
    memset(&s, 0, sizeof s);
    make_spec(&at_least, "BF16", &joined);
    make_spec(&sh, "BF16", &spec);
    if (ops_plan_spec(&joined, &s.work)) return;
    open_sets(&s, SETS_MOST);
    double fixed = time_family(&s, family, most, 20);
    ks_spec_copy(&s.work.spec, &spec);
    const int count = time_all(&s, all);
    ks_spec_copy(&s.work.spec, &joined);
    const double again = time_family(&s, family, most, 20);
    if (again < fixed) fixed = again;
    const ks_matmul_candidate c = ks_matmul_join_candidate(family, joined.in[0].dims[0]);
    ks_matmul_candidate_plan(ops_chip(), &joined, &c, &plan);
    const timed *own = best_of(all, count, false), *library = best_of(all, count, true);
    const double free_us = library && library->us < own->us ? library->us : own->us;
    printf("join BF16 %lld %lldx%lld fixed %.2f own %.2f lt %.2f fixed/free %.3f fixed/own %.3f | %s | %s\n",
           (long long)rows, (long long)k, (long long)n, fixed, own->us, library ? library->us : 0, fixed / free_us,
           fixed / own->us, plan.kernel_info.kernel, own->kernel);
    fflush(stdout);
    if (fixed / free_us > *worst) *worst = fixed / free_us;
    CHECK(cudaFree(s.memory));
}

static void run_family(int64_t k, int64_t n, double *worst)
{
    static const int64_t rows[] = {1, 4, 16, 64, 128, 256};
    const shape sh = {"join", KS_JOIN_ROWS_MAX, k, n, false, false};
    ks_spec most;
    ks_matmul_family family;
    make_spec(&sh, "BF16", &most);
    const double started = seconds();
    if (!ks_matmul_join(ops_chip(), &most, &family)) die("join", "no kernel serves each number of rows");
    printf("join BF16 %lldx%lld chosen in %.2f ms\n", (long long)k, (long long)n, (seconds() - started) * 1e3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run_rows(rows[i], k, n, &family, &most, worst);
}

static void sweep_joined(char **shapes, double until)
{
    static const int64_t fixed[][2] = {{4096, 4096}, {8192, 8192}, {1536, 6144},
                                       {3000, 1000}, {768, 3072},  {11008, 4096}};
    double worst = 0;
    for (size_t i = 0; !*shapes && i < sizeof fixed / sizeof *fixed && seconds() < until; i++)
        run_family(fixed[i][0], fixed[i][1], &worst);
    for (; *shapes && seconds() < until; shapes++) {
        char *times = NULL;
        const int64_t k = strtoll(*shapes, &times, 10), n = *times == 'x' ? strtoll(times + 1, NULL, 10) : 0;
        if (k < 1 || n < 1) die(*shapes, "is no KxN");
        run_family(k, n, &worst);
    }
    printf("join: worst fixed/free %.3f\n", worst);
}

/* --- orders of sums -------------------------------------------------------------------------------------------------- */

enum { ORDERS_MOST = 16 };

typedef struct orders {
    int order[ORDERS_MOST]; /* with the table in front */
    int count;
    int equal[ORDERS_MOST][ORDERS_MOST], differ[ORDERS_MOST][ORDERS_MOST];
} orders;

static int order_of(orders *o, const ks_matmul_candidate *c)
{
    const int order = c->table << 24 | mm_tables[c->table]->rows[c->kernel].layout[1][1].order;
    int at = 0;
    while (at < o->count && o->order[at] != order) at++;
    if (at == o->count) o->order[o->count++] = order;
    return at;
}

static uint64_t hash_output(const sets *s)
{
    static uint64_t words[1 << 19];
    const size_t count = s->work.spec.out[0].size_bytes;
    unsigned char *out = s->memory + s->work.in_bytes;
    uint64_t hash = 0xCBF29CE484222325u;
    if (count >= sizeof words) die("output", "is too large");
    words[count / sizeof *words] = 0;
    CHECK(cudaMemsetAsync(out, 0xA5, count, stream));
    const char *why = launch_set(s, 0);
    if (why) die(s->work.kernel_info.kernel, why);
    CHECK(cudaMemcpyAsync(words, out, count, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i <= (count - 1) / sizeof *words; i++) hash = (hash ^ words[i]) * 0x100000001B3u ^ hash >> 29;
    return hash;
}

static bool same_slices(const ks_matmul_candidate *a, const ks_matmul_candidate *b)
{
    return a->cluster == b->cluster && a->splits == b->splits && a->k_slice == b->k_slice;
}

static void compare_orders(const shape *sh, const char *dtype, orders *o)
{
    static ks_matmul_candidate all[KS_MATMUL_CANDIDATES];
    static uint64_t hash[KS_MATMUL_CANDIDATES];
    sets s;
    ks_spec spec;
    memset(&s, 0, sizeof s);
    make_spec(sh, dtype, &spec);
    if (ops_plan_spec(&spec, &s.work)) return;
    open_sets(&s, 1);
    const int count = ks_matmul_candidates(ops_chip(), &spec, all, KS_MATMUL_CANDIDATES);
    for (int i = 0; i < count; i++) {
        ks_cuda_plan plan;
        if (left_out(&all[i])) continue;
        ks_matmul_candidate_plan(ops_chip(), &spec, &all[i], &plan);
        use_plan(&s.work, &plan);
        hash[i] = hash_output(&s);
        for (int j = 0; j < i; j++) {
            if (left_out(&all[j]) || !same_slices(&all[i], &all[j])) continue;
            const int a = order_of(o, &all[i]), b = order_of(o, &all[j]);
            const int low = a < b ? a : b, high = a < b ? b : a;
            (hash[i] == hash[j] ? o->equal : o->differ)[low][high]++;
        }
    }
    CHECK(cudaFree(s.memory));
}

static void print_orders(const char *dtype, const orders *o)
{
    static const char *const engines[] = {"none", "fma", "mma", "wgmma", "wgmma odd"};
    for (int a = 0; a < o->count; a++)
        for (int b = a; b < o->count; b++) {
            const int x = o->order[a] & 0xFFFFFF, y = o->order[b] & 0xFFFFFF;
            if (!o->equal[a][b] && !o->differ[a][b]) continue;
            printf("orders %s %s %s.%d.%d, %s %s.%d.%d: %d equal, %d differ%s\n", dtype,
                   mm_tables[o->order[a] >> 24]->name, engines[x >> 16], x >> 8 & 255, x & 255,
                   mm_tables[o->order[b] >> 24]->name, engines[y >> 16], y >> 8 & 255, y & 255, o->equal[a][b],
                   o->differ[a][b], a == b && x && o->differ[a][b] ? "  WRONG" : "");
        }
    fflush(stdout);
}

static void sweep_orders(const char *only)
{
    static const char *const dtypes[] = {"BF16", "FP16", "TF32", "FP32"};
    static const shape shapes[] = {{"", 64, 1024, 512, false, false}, {"", 100, 1000, 328, false, false},
                                   {"", 16, 4096, 256, false, true},  {"", 128, 2048, 192, true, false},
                                   {"", 33, 1001, 333, false, false}, {"", 256, 520, 1000, false, false}};
    for (const char *dtype : dtypes) {
        orders o = {};
        if (only && strcmp(only, dtype) != 0) continue;
        for (const shape &sh : shapes) compare_orders(&sh, dtype, &o);
        print_orders(dtype, &o);
    }
}

int main(int argc, char **argv)
{
    char library[160];
    int devices = 0;
    if (argc < 2) die("arguments", "SEED SECONDS [DATATYPE], --shapes, --join SECONDS [KxN...] or --orders [DATATYPE]");
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "sweep_matmul: no CUDA device: skipped\n");
        return 77;
    }
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    const char *why = ops_open();
    if (why) die("open", why);
    ks_cublaslt_open("auto", library, sizeof library);
    const ks_chip *chip = ops_chip();
    printf("chip %d SMs, clusters %d %d %d, %s, copy %.0f GB/s\n", chip->sms, chip->clusters[1], chip->clusters[2],
           chip->clusters[3], library, ops_copy_gbs());
    const double until = seconds() + (argc > 2 ? atof(argv[2]) : 60);
    if (strcmp(argv[1], "--shapes") == 0 && argc > 4)
        sweep_given(argv[2], argv[3], argv + 4);
    else if (strcmp(argv[1], "--orders") == 0)
        sweep_orders(argc > 2 ? argv[2] : NULL);
    else if (strcmp(argv[1], "--join") == 0)
        sweep_joined(argv + (argc > 2 ? 3 : 2), until);
    else
        seed = strtoull(argv[1], NULL, 10), sweep(argc > 3 ? argv[3] : "BF16", until);
    return 0;
}
