/* The door to cuBLASLt on a host without a GPU: a library that takes its place (fake_cublaslt.cc) is opened, refused
 * and asked, and computes random products on host memory, which must be those of our reference.
 *
 * test_cublaslt FAKE      the library's file; prints how many products there were */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "cuda/matmul/cublaslt.cuh"
#include "cpu/reference.h"

static int wrong;

#define CHECK(right)                                                                                                   \
    do {                                                                                                               \
        if (!(right)) {                                                                                                \
            wrong++;                                                                                                   \
            fprintf(stderr, "%d: %s\n", __LINE__, #right);                                                             \
        }                                                                                                              \
    } while (0)

enum { TRANSPOSE_A, TRANSPOSE_B, ALPHA, ACTIVATION, PRECISION };
static const size_t WORKSPACE = 1 << 20;

/* One that differs each time from the last. */
static int64_t below(int64_t limit)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int64_t)(state % (uint64_t)limit);
}

static void set_dims(ks_tensor *t, ks_dtype dtype, int64_t batch, int64_t rows, int64_t columns)
{
    t->dtype = dtype;
    t->rank = batch ? 3 : 2;
    t->dims[0] = batch ? batch : rows;
    t->dims[1] = batch ? rows : columns;
    t->dims[2] = batch ? columns : 0;
}

/* Batches of each operand alone, of both, of none. */
static void draw_spec(ks_spec *spec, ks_dtype dtype)
{
    const int64_t m = 1 + below(9), n = 1 + below(9), k = 1 + below(9), batch = below(2) ? 2 + below(3) : 0;
    ks_error error;
    ks_spec_init(spec, ks_op_find("matmul", 6));
    const bool ta = below(2), tb = below(2), a_batch = batch && below(4), b_batch = batch && (!a_batch || below(4));
    spec->params[TRANSPOSE_A].i = ta;
    spec->params[TRANSPOSE_B].i = tb;
    spec->params[ALPHA].d = below(2) ? 1.0 : -2.5;
    set_dims(&spec->in[0], dtype, a_batch ? batch : 0, ta ? k : m, ta ? m : k);
    set_dims(&spec->in[1], dtype, b_batch ? batch : 0, tb ? n : k, tb ? k : n);
    if (below(2)) {
        spec->given = 7;
        spec->in[2].dtype = dtype;
        spec->in[2].rank = 1;
        spec->in[2].dims[0] = n;
    }
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        CHECK(ks_tensor_measure(&spec->in[i], "INPUT", &error) == KS_OK);
    ks_spec_layout(spec);
    CHECK(spec->op->resolve(spec, &error) == KS_OK);
}

static void fill(ks_dtype dtype, void *at, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double value = (double)(below(17) - 8); /* sums of products stay whole: every order gives the same */
        if (dtype == KS_FP64)
            ((double *)at)[i] = value;
        else
            ((float *)at)[i] = (float)value;
    }
}

static void random_product(ks_dtype dtype)
{
    ks_spec spec;
    ks_matmul_shape shape;
    ks_cublaslt_algorithm candidates[8];
    ks_error error = {};
    draw_spec(&spec, dtype);
    ks_matmul_shape_of(&spec, &shape);
    const int count = ks_cublaslt_list(&spec, &shape, WORKSPACE, candidates, 8);
    CHECK(count >= 2);
    std::vector<unsigned char> in(ks_spec_in_bytes(&spec)), workspace(WORKSPACE), scratch(ks_cpu_scratch_bytes(&spec)),
        out(spec.out[0].size_bytes, 0xFF), right(spec.out[0].size_bytes);
    const void *inputs[KS_INPUTS_MAX] = {};
    for (int i = ks_next_input(&spec, -1); i >= 0; i = ks_next_input(&spec, i)) {
        inputs[i] = in.data() + spec.in[i].offset;
        fill(dtype, in.data() + spec.in[i].offset, ks_tensor_count(&spec.in[i]));
    }
    void *const reference[] = {right.data()};
    ks_cpu_reference(&spec, inputs, reference, scratch.data());
    const ks_cublaslt_job job = {in.data(), out.data(), workspace.data()};
    const ks_status status = ks_cublaslt_launch(&spec, &shape, &candidates[below(2)], &job, NULL, &error);
    if (status != KS_OK) fprintf(stderr, "%s\n", error.text);
    CHECK(status == KS_OK && out == right);
}

static ks_spec square(ks_dtype dtype, int64_t size)
{
    ks_spec spec;
    ks_error error;
    ks_spec_init(&spec, ks_op_find("matmul", 6));
    for (int i = 0; i < 2; i++) {
        set_dims(&spec.in[i], dtype, 0, size, size);
        CHECK(ks_tensor_measure(&spec.in[i], "INPUT", &error) == KS_OK);
    }
    ks_spec_layout(&spec);
    CHECK(spec.op->resolve(&spec, &error) == KS_OK);
    return spec;
}

/* How many of the fake's seven are taken. */
static int listed(const ks_spec *spec)
{
    ks_matmul_shape shape;
    ks_cublaslt_algorithm candidates[8];
    ks_matmul_shape_of(spec, &shape);
    const int count = ks_cublaslt_list(spec, &shape, WORKSPACE, candidates, 8);
    for (int i = 0; i < count; i++) {
        CHECK(ks_cublaslt_check(spec, &shape, WORKSPACE, &candidates[i]));
        CHECK(!ks_cublaslt_check(spec, &shape, 1024, &candidates[i]) || candidates[i].workspace_bytes <= 1024);
    }
    return count;
}

static void which_are_taken()
{
    ks_spec spec = square(KS_FP32, 8);
    CHECK(listed(&spec) == 2); /* exact: no tensor cores */
    spec.params[PRECISION].i = 1;
    CHECK(listed(&spec) == 3);
    spec = square(KS_BF16, 8);
    CHECK(listed(&spec) == 3);
    spec.params[ACTIVATION].i = 1;
    CHECK(listed(&spec) == 0);
    spec = square(KS_FP64, 8);
    spec.params[ALPHA].d = 0.1;
    CHECK(listed(&spec) > 0);
    spec = square(KS_FP32, 8);
    spec.params[ALPHA].d = 0.1; /* no float */
    CHECK(listed(&spec) == 0);
    spec.params[ALPHA].d = 0;
    CHECK(listed(&spec) == 0);
    spec = square(KS_FP32, 0);
    CHECK(listed(&spec) == 0);
}

static void bytes_of_any_origin_are_refused()
{
    const ks_spec spec = square(KS_FP32, 8);
    ks_matmul_shape shape;
    ks_cublaslt_algorithm algorithm = {};
    ks_matmul_shape_of(&spec, &shape);
    CHECK(!ks_cublaslt_check(&spec, &shape, WORKSPACE, &algorithm));
    memset(&algorithm, 0xFF, sizeof algorithm);
    CHECK(!ks_cublaslt_check(&spec, &shape, WORKSPACE, &algorithm));
    ks_cublaslt_algorithm good;
    CHECK(ks_cublaslt_list(&spec, &shape, WORKSPACE, &good, 1) == 1);
    char name[KS_KERNEL_NAME];
    ks_cublaslt_name(&good, name, sizeof name);
    CHECK(strncmp(name, "cublasLt 1:", 11) == 0);
    good.algorithm[2] = 4; /* another reduction */
    CHECK(!ks_cublaslt_check(&spec, &shape, WORKSPACE, &good));
}

static void a_failing_launch_says_so()
{
    const ks_spec spec = square(KS_FP32, 2);
    float memory[256] = {};
    ks_matmul_shape shape;
    ks_cublaslt_algorithm algorithm;
    ks_error error = {};
    ks_matmul_shape_of(&spec, &shape);
    CHECK(ks_cublaslt_list(&spec, &shape, WORKSPACE, &algorithm, 1) == 1);
    const ks_cublaslt_job job = {(unsigned char *)memory, (unsigned char *)memory, NULL};
    CHECK(ks_cublaslt_launch(&spec, &shape, &algorithm, &job, NULL, &error) == KS_DEVICE);
    CHECK(strstr(error.text, "cublasLtMatmul says"));
}

/* A process of its own, because the library is opened once: the fake misbehaves so. */
static void in_a_process(const char *fault, const char *file, const char *says, void (*then)())
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        char what[160];
        setenv("FAKE_LT", fault, 1);
        wrong = 0;
        const bool opened = ks_cublaslt_open(file, what, sizeof what);
        CHECK(opened == (then != NULL) && strstr(what, says));
        CHECK((ks_cublaslt_version() != 0) == opened);
        const ks_spec spec = square(KS_FP32, 8);
        if (!opened || strcmp(fault, "heuristic") == 0) CHECK(listed(&spec) == 0);
        if (opened) then();
        _exit(wrong != 0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) fprintf(stderr, "FAKE_LT=%s %s\n", fault, file);
    CHECK(status == 0);
}

static void nothing()
{
}

int main(int argc, char **argv)
{
    enum { PRODUCTS = 400 };
    char what[160];
    if (argc != 2) return 64;
    in_a_process("version", argv[1], "version 9", NULL);
    in_a_process("create", argv[1], "cublasLtCreate says", NULL);
    in_a_process("heuristic", argv[1], "cuBLASLt ", nothing);
    in_a_process("matmul", argv[1], "cuBLASLt ", a_failing_launch_says_so);
    in_a_process("", "/nonexistent/libcublasLt.so", "no cuBLASLt: ", NULL);
    in_a_process("", "libm.so.6", "version 0", NULL); /* a library, but another one */
    CHECK(ks_cublaslt_open(argv[1], what, sizeof what));
    which_are_taken();
    bytes_of_any_origin_are_refused();
    for (int i = 0; i < PRODUCTS; i++) random_product(i % 2 ? KS_FP64 : KS_FP32);
    printf("%d products, %d wrong\n", PRODUCTS, wrong);
    return wrong != 0;
}
