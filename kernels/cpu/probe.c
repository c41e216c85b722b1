/* The rates of memory beyond the caches, and of arithmetic.
 *
 * Copies and reads run on one thread, as a lane's work does, between buffers of at least twice the last cache whose pages have
 * all been touched: a copy within a cache, or from a page that was never written, is several times as fast.
 * Threads  any; the size of the caches is fixed by open. */
#include "cpu/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cpu/onednn.h"
#include "cpu/reference.h"
#include "cpu/simd.h"

enum { RUNS = 7, PRODUCT_RUNS = 5, PRODUCT_SIZE = 512 };

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int compare_times(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static size_t last_cache_bytes; /* 0: not known */

/* What sysconf says of a virtual machine may be the whole host's. */
void ks_cpu_probe_open(void)
{
    size_t most = 0;
    for (int i = 0; i < 8; i++) {
        char path[80];
        size_t size = 0;
        char unit = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *file = fopen(path, "re");
        if (!file) break;
        if (fscanf(file, "%zu%c", &size, &unit) == 2) size <<= unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
        fclose(file);
        if (size > most) most = size;
    }
    const long said = most ? 0 : sysconf(_SC_LEVEL3_CACHE_SIZE);
    last_cache_bytes = most ? most : said > 0 ? (size_t)said : 0;
}

/* Of one of two buffers. A sanitizer watches several bytes for each one: its rates say nothing, so that little is enough. */
static size_t buffer_bytes(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return (size_t)1 << 20;
#else
    const size_t least = (size_t)64 << 20;
    return 2 * last_cache_bytes > least ? 2 * last_cache_bytes : least;
#endif
}

static int64_t time_copy(unsigned char *to, const unsigned char *from, size_t bytes)
{
    const int64_t begun = now_ns();
    memcpy(to, from, bytes);
    __asm__ volatile("" ::"r"(to) : "memory"); /* the compiler must take it for read */
    return now_ns() - begun;
}

/* As wide as the references read. */
static KS_CLONES uint64_t sum_words(const unsigned char *from, size_t bytes)
{
    enum { SUMS = 32 };
    uint64_t sums[SUMS] = {0}, sum = 0;
    for (size_t at = 0; at + sizeof sums <= bytes; at += sizeof sums) {
        const uint64_t *words = (const uint64_t *)(const void *)(from + at);
        for (int i = 0; i < SUMS; i++) sums[i] += words[i];
    }
    for (int i = 0; i < SUMS; i++) sum += sums[i];
    return sum;
}

static int64_t time_read(const unsigned char *from, size_t bytes)
{
    const int64_t begun = now_ns();
    const uint64_t sum = sum_words(from, bytes);
    __asm__ volatile("" ::"r"(sum) : "memory");
    return now_ns() - begun;
}

static double median_rate(int64_t times[RUNS], double bytes)
{
    qsort(times, RUNS, sizeof times[0], compare_times);
    const int64_t median = times[RUNS / 2];
    return median > 0 ? bytes / (double)median : 0;
}

/* probe.memory */
static ks_status memory_rates(ks_device *device, size_t most, ks_memory_rates *out, ks_error *error)
{
    (void)device;
    const size_t cache = last_cache_bytes, bytes = buffer_bytes();
    if (2 * bytes > most)
        return ks_fail(error, KS_MEMORY, "copies beyond a cache of %zu bytes need 2 x %zu bytes, %zu may be used",
                       cache, bytes, most);
    unsigned char *both = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED) return ks_fail(error, KS_MEMORY, "no memory for a copy of %zu bytes", bytes);
    memset(both, 1, 2 * bytes);
    int64_t copies[RUNS], reads[RUNS];
    for (int i = 0; i < RUNS; i++) {
        copies[i] = time_copy(both + bytes, both, bytes);
        reads[i] = time_read(both, bytes);
    }
    munmap(both, 2 * bytes);
    *out = (ks_memory_rates){.copy_gbs = median_rate(copies, 2 * (double)bytes),
                             .read_gbs = median_rate(reads, (double)bytes),
                             .cache_bytes = cache};
    snprintf(out->source, sizeof out->source, "memory of %zu MiB, one thread, median of %d", bytes >> 20, (int)RUNS);
    return KS_OK;
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

static ks_status product_spec(ks_spec *spec, ks_error *error)
{
    const ks_op *op = ks_op_find("matmul", strlen("matmul"));
    if (!op) return ks_fail(error, KS_CONFIG, "no operation matmul to measure with");
    ks_spec_init(spec, op);
    for (int i = 0; i < 2; i++) {
        spec->in[i] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {PRODUCT_SIZE, PRODUCT_SIZE}};
        const ks_status status = ks_tensor_measure(&spec->in[i], op->inputs[i].name, error);
        if (status != KS_OK) return status;
        spec->given |= (uint16_t)(1u << i);
    }
    ks_spec_layout(spec);
    return op->resolve(spec, error);
}

/* The fastest of a few; a first run warms. */
static int64_t time_product(const ks_spec *spec, float *memory, void *scratch, bool *library)
{
    const size_t count = (size_t)PRODUCT_SIZE * PRODUCT_SIZE;
    const void *in[KS_OP_INPUTS_MAX] = {memory, memory + count};
    void *out[KS_OP_OUTPUTS_MAX] = {memory + 2 * count};
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < 2 * count; i++) memory[i] = 0.5f + (float)(i * 7919 % 2003) / 4006;
    for (int i = 0; i <= PRODUCT_RUNS; i++) {
        const int64_t begun = now_ns();
        *library = ks_onednn_takes(spec) && ks_onednn_run(spec, in, out[0]);
        if (!*library) ks_cpu_reference(spec, in, out, scratch);
        const int64_t took = now_ns() - begun;
        if (i > 0 && took < best) best = took;
    }
    return best;
}

/* Memory that goes back to the system: what malloc had would stay in the arena of the thread that measures, once in its life. */
static ks_status fastest(const ks_spec *spec, ks_peak *out, ks_error *error)
{
    const size_t tensors = ks_align(3 * sizeof(float) * PRODUCT_SIZE * PRODUCT_SIZE);
    const size_t bytes = tensors + ks_cpu_scratch_bytes(spec);
    bool library = false;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return ks_fail(error, KS_MEMORY, "no memory for a product");
    const int64_t took = time_product(spec, (float *)(void *)memory, memory + tensors, &library);
    munmap(memory, bytes);
    out->tflops = took > 0 ? spec->flops / (double)took / 1e3 : 0;
    snprintf(out->source, sizeof out->source, "FP32 product of size %d, %s, one thread, best of %d", PRODUCT_SIZE,
             library ? "oneDNN" : "own", (int)PRODUCT_RUNS);
    return KS_OK;
}

/* probe.peak. Floating-point numbers of every datatype are computed as FP32 or FP64 here, so that FP32's rate is no lower than
 * that of any other. */
static ks_status peak(ks_device *device, ks_dtype dtype, ks_peak *out, ks_error *error)
{
    (void)device;
    ks_spec spec;
    if (ks_dtype_kind(dtype) != KS_KIND_FLOAT)
        return ks_fail(error, KS_DATATYPE, "no product of %s to measure with", ks_dtype_name(dtype));
    const ks_status status = product_spec(&spec, error);
    return status == KS_OK ? fastest(&spec, out, error) : status;
}

void ks_cpu_probe_name(char *out, size_t cap)
{
    snprintf(out, cap, "CPU");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *name = strchr(line, ':');
        if (name) snprintf(out, cap, "%.*s", (int)strcspn(name + 1, "\n") - 1, name + 2);
        break;
    }
    fclose(file);
}

const ks_probe ks_cpu_probe = {.memory = memory_rates, .peak = peak};
