/* A model's definition of any bytes: the reader ends, with a sentence or with a chain; what it has accepted resolves, has a program, and
 * the program gives what its nodes give one by one, each value in memory of its own.
 *
 * Input  a document; or CHOICES, which begins none, and bytes by which one is written (definition_writer.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "chain_run.h"
#include "definition_writer.h"
#include "fuzz.h"
#include "models/definition.h"

enum { WORK_MAX = 1 << 20, BYTES_MAX = 1 << 20, CHOICES = 0xFF };

/* Resident tensors of a few shapes, by the name's first letter. */
static ks_tensor resident_tensor(const char *name, void *memory)
{
    ks_tensor tensor = {.dtype = KS_FP32, .rank = 2, .dims = {4, 4}, .fixed = memory};
    if (name[0] >= 'a' && name[0] <= 'd') tensor.dims[1] = 3;
    if (name[0] >= 'e' && name[0] <= 'h') tensor.rank = 1, tensor.dims[1] = 0;
    if (name[0] >= 'i' && name[0] <= 'l') tensor.dtype = KS_INT32;
    ks_error ignored;
    (void)ks_tensor_measure(&tensor, name, &ignored);
    return tensor;
}

static void bind(ks_definition *definition, unsigned char *memory)
{
    for (int i = 0; i < definition->initializers; i++) {
        const ks_initializer *from = &definition->initializer[i];
        ks_tensor tensor = from->tensor;
        if (from->resident)
            tensor = resident_tensor(from->resident, memory);
        else
            tensor.fixed = from->data;
        ks_definition_bind(definition, i, &tensor);
    }
}

static void fill(const ks_tensor *tensor, void *memory, int input)
{
    const size_t element = ks_dtype_size(tensor->dtype), count = tensor->size_bytes / element;
    memset(memory, 0, tensor->size_bytes);
    for (size_t i = 0; i < count; i++) {
        const float value = (float)((i * 7 + (size_t)input * 3) % 13) / 4 - 1;
        unsigned char *const at = (unsigned char *)memory + i * element;
        if (tensor->dtype == KS_FP32)
            memcpy(at, &value, sizeof value);
        else
            at[0] = (unsigned char)(i & 1); /* a small number of each other type, and of BOOL */
    }
}

static size_t bytes_of(const ks_spec *spec)
{
    return ks_spec_read_bytes(spec) + ks_spec_written_bytes(spec);
}

static void try_batch(const ks_definition *definition, int64_t batch)
{
    ks_spec spec;
    ks_error error = {0};
    ks_program *program = NULL;
    if (ks_definition_sample(definition, batch, &spec, &error) != KS_OK) {
        assert(error.text[0]);
        return;
    }
    if (bytes_of(&spec) > BYTES_MAX || spec.flops > WORK_MAX) return;
    assert(ks_program_make(&spec, &ks_cpu_chain_means, &program, &error) == KS_OK);
    const bool small = program->arena_bytes <= BYTES_MAX;
    ks_program_free(&program);
    if (small) assert(chain_is_right(&spec, fill));
}

static void try_document(const char *text, size_t length)
{
    static unsigned char memory[4 * 4 * 8 + KS_PAD];
    ks_definition *definition = NULL;
    ks_error error = {0};
    const ks_status status = ks_definition_read("fuzzed", text, length, &definition, &error);
    assert((status == KS_OK) == (definition != NULL) && (status == KS_OK || error.text[0]));
    if (status != KS_OK) return;
    bind(definition, memory);
    if (ks_definition_infer(definition, &error) == KS_OK) {
        assert(definition->model.outputs >= 1 && definition->model.op == &definition->chain.op);
        try_batch(definition, 1);
        try_batch(definition, 3);
    } else {
        assert(error.text[0]);
    }
    ks_definition_free(&definition);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[DEFINITION_TEXT_MAX];
    if (size > 0 && data[0] == CHOICES)
        try_document(text, definition_write(data + 1, size - 1, text));
    else
        try_document((const char *)data, size);
    return 0;
}
