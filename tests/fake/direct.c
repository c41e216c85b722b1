/* An operation called directly, for tests that compare what came over HTTP with it, bit by bit.
 *
 *   direct cpu|cuda planned|copies|mapped
 *
 * Input, again and again: a line "MODEL QUERY", the query as of a plain raw request, then the inputs' bytes. Output
 * for each: a line with the number of bytes, then these. Ends with 0 at the end of the input, with 77 where there is
 * no such device, with 1 and a sentence when anything is wrong. The workspace is as large as the arena: a daemon that
 * is compared gets the same by --workspace, since plans may depend on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/decode.h"
#include "ops/op_harness.h"

enum { ARENA_BYTES = 256 << 20, LINE = 4096 };

static const ks_codec_limits limits = {.max_body = ARENA_BYTES, .max_output = ARENA_BYTES};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "direct: %s: %s\n", what, why);
    return 1;
}

/* The inputs come one after the other, without the gaps of a slot. */
static bool read_inputs(const ks_spec *spec, void **inputs)
{
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        inputs[i] = malloc(spec->in[i].size_bytes + 1);
        if (!inputs[i] || fread(inputs[i], 1, spec->in[i].size_bytes, stdin) != spec->in[i].size_bytes) return false;
    }
    return true;
}

static int run(op_harness *harness, op_path path, const ks_spec *spec)
{
    ks_error error = {.text = "no memory, or the input is too short"};
    void *inputs[KS_INPUTS_MAX] = {NULL}, *output = malloc(spec->out[0].size_bytes + 1);
    const bool done =
        output && read_inputs(spec, inputs) &&
        op_harness_run(harness, spec, (const void *const *)inputs, output, path, 1, false, &error) == KS_OK;
    if (done) {
        printf("%zu\n", spec->out[0].size_bytes);
        fwrite(output, 1, spec->out[0].size_bytes, stdout);
        fflush(stdout);
    }
    for (int i = 0; i < KS_INPUTS_MAX; i++) free(inputs[i]);
    free(output);
    return done ? 0 : fail(spec->op->name, error.text);
}

static int serve(op_harness *harness, op_path path, ks_codec *oip)
{
    char line[LINE];
    int code = 0;
    while (code == 0 && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        const char *query = strchrnul(line, ' ');
        const ks_codec_head head = {.model = ks_model_find(line, (size_t)(query - line)),
                                    .query = *query ? query + 1 : query,
                                    .content_length = -1};
        ks_error error;
        if (!head.model) return fail(line, "no such model");
        if (ks_codec_begin(oip, &head, &limits, NULL, NULL, &error) != KS_OK) return fail(line, error.text);
        code = run(harness, path, &ks_codec_request(oip)->spec);
        ks_codec_fini(oip);
    }
    return code;
}

int main(int argc, char **argv)
{
    static const char *const paths[] = {"planned", "copies", "mapped"}; /* as op_path has them */
    int path = 0;
    if (argc != 3) return fail("usage", "direct cpu|cuda planned|copies|mapped");
    while (path < 3 && strcmp(argv[2], paths[path]) != 0) path++;
    if (path == 3) return fail(argv[2], "no such path");
    ks_models_init();
    op_harness *harness = op_harness_open(strcmp(argv[1], "cuda") == 0 ? ks_backend_cuda : ks_backend_cpu, ARENA_BYTES);
    ks_codec *oip = calloc(1, ks_codec_size());
    if (!harness || !oip) {
        fail(argv[1], "no such device");
        return 77;
    }
    const int code = serve(harness, (op_path)path, oip);
    free(oip);
    op_harness_close(&harness);
    return code;
}
