/* The document of a definition: checked member by member; the first fault is the answer. Its nodes: nodes.c.
 *
 * Owns     the definition while it is read.
 * Interface definition.h, but for ks_definition_infer; reader.h for nodes.c
 * Limits   the scanner's: depth 16, 1 KiB a string, 64 members an object.
 * Threads  one at a time. */
#include "models/definition.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "base/text.h"
#include "models/reader.h"

enum {
    STRING_MAX = 1024,
    MEMBERS_MAX = 64,
    /* A number takes three bytes more in the JSON head than in the text: "1," is five. */
    HEAD_MAX = 4 * KS_DEFINITION_BYTES_MAX
};

/* --- shapes ----------------------------------------------------------------------------------------------------------- */

/* Word 0 is the batch, which has no name. */
static ks_status find_word(ks_definition_reader *r, const char *name, const char *what, int64_t *dim)
{
    ks_chain *chain = &r->definition->chain;
    int i = 1;
    while (i < chain->words && strcmp(r->definition->word[i], name) != 0) i++;
    *dim = KS_DIM_WORD - i;
    if (i < chain->words) return KS_OK;
    if (!ks_definition_is_name(name, strlen(name), "_"))
        return ks_fail(r->error, KS_SHAPE, "%s: '%s' is no word for a dimension: A-Z a-z 0-9 _", what,
                       ks_quoted(name, strlen(name)).text);
    if (i == KS_CHAIN_WORDS_MAX)
        return ks_fail(r->error, KS_SHAPE, "%s: more than %d free lengths", what, KS_CHAIN_FREE_MAX);
    r->definition->word[i] = ks_definition_keep(r->definition, name);
    if (!r->definition->word[i]) return ks_fail(r->error, KS_MEMORY, "no memory for a definition's names");
    chain->words = i + 1;
    return KS_OK;
}

static ks_status read_dim(ks_definition_reader *r, const ks_json *item, const char *what, bool first, int64_t *dim)
{
    const char *const text = ks_json_text(item);
    if (ks_json_is_text(item)) return find_word(r, text, what, dim);
    if (!ks_json_is_number(item) || ks_number_read(text, strlen(text), KS_INT64, dim) != KS_NUMBER_OK || *dim < -1 ||
        *dim == 0)
        return ks_fail(r->error, KS_SHAPE, "%s: 'shape' holds %s, which is no length of 1 or more, -1 or a word", what,
                       ks_quoted(text, strlen(text)).text);
    if (*dim == -1 && first) *dim = KS_DIM_WORD;
    return KS_OK;
}

static ks_status read_datatype(ks_definition_reader *r, const ks_json *item, const char *what, ks_dtype *out)
{
    const char *const text = ks_json_text(ks_json_member(item, "datatype"));
    if (ks_dtype_find(text, strlen(text), out) && ks_dtype_size(*out) > 0) return KS_OK;
    return ks_fail(r->error, KS_DATATYPE, "%s: data-type '%s' is unknown, or cannot be computed with", what,
                   ks_quoted(text, strlen(text)).text);
}

static ks_status read_tensor(ks_definition_reader *r, const ks_json *item, const char *what, ks_chain_tensor *out)
{
    const ks_json *dims = ks_json_member(item, "shape");
    ks_status status = read_datatype(r, item, what, &out->dtype);
    if (status != KS_OK) return status;
    if (!dims || !ks_json_is_list(dims)) return ks_fail(r->error, KS_SHAPE, "%s: 'shape' is no list", what);
    out->rank = 0;
    for (item = ks_json_first(dims); item && status == KS_OK; item = ks_json_next(item)) {
        if (out->rank == KS_RANK_MAX)
            return ks_fail(r->error, KS_SHAPE, "%s: 'shape' has more than %d dimensions", what, KS_RANK_MAX);
        status = read_dim(r, item, what, out->rank == 0, &out->dims[out->rank]);
        out->rank++;
    }
    return status;
}

/* --- inputs, outputs ---------------------------------------------------------------------------------------------------- */

static ks_status find_list(ks_definition_reader *r, const char *member, int least, int most, const ks_json **out)
{
    int count = 0;
    *out = ks_json_member(r->top, member);
    if (*out && !ks_json_is_list(*out)) return ks_fail(r->error, KS_FIELD, "'%s' is no list", member);
    if (*out)
        for (const ks_json *item = ks_json_first(*out); item; item = ks_json_next(item)) count++;
    if (count >= least && count <= most) return KS_OK;
    return ks_fail(r->error, KS_DEFINITION, "'%s' has %d entries, takes %d to %d", member, count, least, most);
}

static ks_status read_input(ks_definition_reader *r, const ks_json *item, int index)
{
    static const char *const known[] = {"name", "datatype", "shape", NULL};
    ks_chain *chain = &r->definition->chain;
    ks_chain_tensor *in = &chain->in[index];
    char what[KS_CHAIN_NAME_MAX];
    snprintf(what, sizeof what, "input %d", index);
    if (!ks_json_is_object(item)) return ks_fail(r->error, KS_FIELD, "%s is no object", what);
    ks_status status = ks_definition_name(r, ks_json_member(item, "name"), what, KS_DEFINITION_IO_NAME_MAX, &in->name);
    if (status != KS_OK) return status;
    snprintf(what, sizeof what, "input '%s'", in->name);
    status = ks_definition_members(r, item, what, known);
    if (status == KS_OK) status = read_tensor(r, item, what, in);
    if (status == KS_OK) status = ks_definition_add_value(r, in->name, what);
    if (status != KS_OK) return status;
    chain->op.inputs[index] = (ks_input){.name = in->name,
                                         .role = in->name,
                                         .dtypes = KS_DTYPE_BIT(in->dtype),
                                         .rank_min = in->rank,
                                         .rank_max = in->rank,
                                         .rank = in->rank};
    chain->op.inputs_count = index + 1;
    return KS_OK;
}

static int count_free(const ks_chain *chain)
{
    int batch = 0, any = 0;
    for (int i = 0; i < chain->op.inputs_count; i++)
        for (int axis = 0; axis < chain->in[i].rank; axis++) {
            batch |= chain->in[i].dims[axis] == KS_DIM_WORD;
            any += chain->in[i].dims[axis] == KS_DIM_ANY;
        }
    return batch + any + chain->words - 1;
}

static ks_status read_inputs(ks_definition_reader *r)
{
    const ks_json *list;
    ks_status status = find_list(r, "inputs", 1, KS_INPUTS_MAX, &list);
    if (status != KS_OK) return status;
    const ks_json *item = ks_json_first(list);
    for (int i = 0; item && status == KS_OK; i++, item = ks_json_next(item)) status = read_input(r, item, i);
    const int free_lengths = status == KS_OK ? count_free(&r->definition->chain) : 0;
    if (free_lengths <= KS_CHAIN_FREE_MAX) return status;
    return ks_fail(r->error, KS_SHAPE, "the inputs have %d free lengths, at most %d can be", free_lengths,
                   KS_CHAIN_FREE_MAX);
}

static ks_status read_output(ks_definition_reader *r, const ks_json *item, int index)
{
    static const char *const known[] = {"name", "datatype", "shape", NULL};
    ks_chain *chain = &r->definition->chain;
    ks_chain_tensor *out = &chain->out[index];
    char what[KS_CHAIN_NAME_MAX];
    snprintf(what, sizeof what, "output %d", index);
    if (!ks_json_is_object(item)) return ks_fail(r->error, KS_FIELD, "%s is no object", what);
    ks_status status = ks_definition_name(r, ks_json_member(item, "name"), what, KS_DEFINITION_IO_NAME_MAX, &out->name);
    if (status != KS_OK) return status;
    snprintf(what, sizeof what, "output '%s'", out->name);
    status = ks_definition_members(r, item, what, known);
    if (status != KS_OK) return status;
    const int value = ks_definition_value(r, out->name);
    if (value < 0) return ks_fail(r->error, KS_NAME, "%s is made by no node", what);
    for (int i = 0; i < index; i++)
        if (chain->output[i] == value) return ks_fail(r->error, KS_NAME, "%s is given twice", what);
    chain->output[index] = (int16_t)value;
    chain->outputs = index + 1;
    r->definition->output_name[index] = out->name;
    out->rank = -1;
    if (!ks_json_member(item, "datatype") && !ks_json_member(item, "shape")) return KS_OK;
    return read_tensor(r, item, what, out);
}

static ks_status read_outputs(ks_definition_reader *r)
{
    const ks_json *list;
    ks_status status = find_list(r, "outputs", 1, KS_OUTPUTS_MAX, &list);
    if (status != KS_OK) return status;
    const ks_json *item = ks_json_first(list);
    for (int i = 0; item && status == KS_OK; i++, item = ks_json_next(item)) status = read_output(r, item, i);
    return status;
}

/* --- initializers ------------------------------------------------------------------------------------------------------- */

/* Memory for one's elements, behind that of those in front: all of them take KS_DEFINITION_DATA_MAX at most. */
static ks_status read_elements(ks_definition_reader *r, const ks_json *list, const char *what, ks_initializer *out)
{
    const size_t element = ks_dtype_size(out->tensor.dtype);
    size_t at = r->definition->data_length;
    int64_t count = 0;
    for (const ks_json *item = ks_json_first(list); item; item = ks_json_next(item), count++) {
        const char *text = ks_json_is_bool(item) ? (ks_json_is_true(item) ? "true" : "false") : ks_json_text(item);
        if (count == ks_tensor_count(&out->tensor)) break;
        if (ks_json_is_text(item) ||
            ks_number_read(text, strlen(text), out->tensor.dtype, r->definition->data + at) != KS_NUMBER_OK)
            return ks_fail(r->error, KS_RANGE, "%s: element %" PRId64 " of 'data' is no %s that JSON can hold: '%s'",
                           what, count, ks_dtype_name(out->tensor.dtype), ks_quoted(text, strlen(text)).text);
        at += element;
    }
    int64_t all = 0;
    for (const ks_json *item = ks_json_first(list); item; item = ks_json_next(item)) all++;
    if (all != ks_tensor_count(&out->tensor))
        return ks_fail(r->error, KS_COUNT, "%s: 'data' has %" PRId64 " elements, by its shape %" PRId64, what, all,
                       ks_tensor_count(&out->tensor));
    out->data = r->definition->data + r->definition->data_length;
    r->definition->data_length = (at + 7) / 8 * 8;
    return KS_OK;
}

/* Elements in the document itself. */
static ks_status read_inline(ks_definition_reader *r, const ks_json *item, const char *what, ks_initializer *out,
                             int64_t *left)
{
    ks_chain_tensor declared = {.name = what};
    const ks_json *list = ks_json_member(item, "data");
    ks_status status = read_tensor(r, item, what, &declared);
    if (status != KS_OK) return status;
    out->tensor = (ks_tensor){.dtype = declared.dtype, .rank = declared.rank};
    for (int i = 0; i < declared.rank; i++) {
        if (declared.dims[i] < 1) return ks_fail(r->error, KS_SHAPE, "%s: its shape has a length that is free", what);
        out->tensor.dims[i] = declared.dims[i];
    }
    status = ks_tensor_measure(&out->tensor, what, r->error);
    if (status != KS_OK) return status;
    if (ks_tensor_count(&out->tensor) > *left)
        return ks_fail(r->error, KS_DEFINITION,
                       "%s: the document holds more than %d elements: make it a resident tensor", what,
                       KS_DEFINITION_DATA_MAX);
    *left -= ks_tensor_count(&out->tensor);
    if (!ks_json_is_list(list)) return ks_fail(r->error, KS_FIELD, "%s: 'data' is no list", what);
    return read_elements(r, list, what, out);
}

const char ks_definition_file[] = "weights.safetensors";

/* A tensor of a file: the file's name is of the document's folder, and no path. */
static ks_status read_of_file(ks_definition_reader *r, const ks_json *item, const char *what, ks_initializer *out)
{
    static const char ending[] = ".safetensors";
    const char *const file = ks_json_text(ks_json_member(item, "file"));
    const size_t length = strlen(file), end = sizeof ending - 1;
    if (length <= end || length > KS_CHAIN_NAME_MAX || strcmp(file + length - end, ending) != 0 || *file == '.' ||
        !ks_definition_is_name(file, length, "_.-"))
        return ks_fail(r->error, KS_NAME, "%s: a file has a name of A-Z a-z 0-9 _ . - that ends in %s, got '%s'", what,
                       ending, ks_quoted(file, length).text);
    out->file = ks_definition_keep(r->definition, file);
    if (!out->file) return ks_fail(r->error, KS_MEMORY, "no memory for a definition's names");
    return ks_definition_name(r, ks_json_member(item, "key"), what, KS_CHAIN_NAME_MAX, &out->key);
}

/* A name alone: that of the value, and its key in the file. */
static ks_status read_key(ks_definition_reader *r, const ks_json *item, const char *what, ks_initializer *out)
{
    const ks_status status = ks_definition_name(r, item, what, KS_CHAIN_NAME_MAX, &out->name);
    if (status != KS_OK) return status;
    out->file = ks_definition_file;
    out->key = out->name;
    return ks_definition_add_value(r, out->name, what);
}

static ks_status read_initializer(ks_definition_reader *r, const ks_json *item, int index, int64_t *left)
{
    static const char *const inlined[] = {"name", "datatype", "shape", "data", NULL};
    static const char *const resident[] = {"name", "tensor", NULL};
    static const char *const of_file[] = {"name", "file", "key", NULL};
    ks_initializer *out = &r->definition->initializer[index];
    char what[KS_CHAIN_NAME_MAX + 24];
    snprintf(what, sizeof what, "initializer %d", index);
    if (ks_json_is_text(item)) return read_key(r, item, what, out);
    if (!ks_json_is_object(item)) return ks_fail(r->error, KS_FIELD, "%s is no object", what);
    ks_status status = ks_definition_name(r, ks_json_member(item, "name"), what, KS_CHAIN_NAME_MAX, &out->name);
    if (status != KS_OK) return status;
    snprintf(what, sizeof what, "initializer '%s'", out->name);
    const bool named = ks_json_member(item, "tensor") != NULL, data = ks_json_member(item, "data") != NULL,
               file = ks_json_member(item, "file") != NULL;
    if (named + data + file != 1)
        return ks_fail(r->error, KS_DEFINITION, "%s has %d of 'tensor', 'file' and 'data', needs one", what,
                       named + data + file);
    status = ks_definition_members(r, item, what, named ? resident : file ? of_file : inlined);
    if (status == KS_OK) status = ks_definition_add_value(r, out->name, what);
    if (status != KS_OK) return status;
    if (data) return read_inline(r, item, what, out, left);
    if (file) return read_of_file(r, item, what, out);
    return ks_definition_name(r, ks_json_member(item, "tensor"), what, KS_CHAIN_NAME_MAX, &out->resident);
}

static size_t count_elements(const ks_json *list)
{
    size_t count = 0;
    for (const ks_json *item = ks_json_first(list); item; item = ks_json_next(item)) {
        const ks_json *data = ks_json_is_object(item) ? ks_json_member(item, "data") : NULL;
        for (data = ks_json_is_list(data) ? ks_json_first(data) : NULL; data; data = ks_json_next(data)) count++;
    }
    return count;
}

static ks_status read_initializers(ks_definition_reader *r)
{
    ks_definition *definition = r->definition;
    const ks_json *list;
    int64_t left = KS_DEFINITION_DATA_MAX;
    int count = 0;
    ks_status status = find_list(r, "initializers", 0, KS_CHAIN_CONSTANTS_MAX, &list);
    if (status != KS_OK || !list) return status;
    for (const ks_json *item = ks_json_first(list); item; item = ks_json_next(item)) count++;
    definition->initializer = calloc((size_t)count + 1, sizeof *definition->initializer);
    definition->constant = calloc((size_t)count + 1, sizeof *definition->constant);
    definition->data = malloc(count_elements(list) * 8 + (size_t)count * 8 + 8);
    if (!definition->initializer || !definition->constant || !definition->data)
        return ks_fail(r->error, KS_MEMORY, "no memory for %d initializers", count);
    for (const ks_json *item = ks_json_first(list); item && status == KS_OK; item = ks_json_next(item))
        status = read_initializer(r, item, definition->initializers++, &left);
    definition->chain.constants = definition->initializers;
    return status;
}

/* --- the whole ---------------------------------------------------------------------------------------------------------- */

void ks_definition_lower_batch(ks_definition *definition, int64_t most)
{
    definition->chain.max_batch = most;
    definition->model.max_batch = (int)most;
}

ks_status ks_definition_batch(ks_definition *definition, uint64_t most, ks_error *error)
{
    if (most < 1 || most > KS_DEFINITION_BATCH_MAX)
        return ks_fail(error, KS_DEFINITION, "'max_batch' is a whole number, 1 to %d", KS_DEFINITION_BATCH_MAX);
    ks_definition_lower_batch(definition, (int64_t)most);
    definition->names_batch = true;
    for (int i = 0; i < definition->chain.op.inputs_count; i++) {
        const ks_chain_tensor *in = &definition->chain.in[i];
        if (in->rank == 0 || in->dims[0] != KS_DIM_WORD)
            return ks_fail(error, KS_DEFINITION, "'max_batch' needs inputs that begin with -1, '%s' does not",
                           in->name);
    }
    return KS_OK;
}

static ks_status read_batch(ks_definition_reader *r)
{
    const ks_json *item = ks_json_member(r->top, "max_batch");
    uint64_t most = 0;
    if (!item) return KS_OK;
    if (!ks_json_read_unsigned(item, &most)) most = 0;
    return ks_definition_batch(r->definition, most, r->error);
}

static ks_status read_format(ks_definition_reader *r)
{
    const ks_json *item = ks_json_member(r->top, "format"), *fuse = ks_json_member(r->top, "fuse"),
                  *description = ks_json_member(r->top, "description");
    uint64_t format = 0;
    if (!ks_json_read_unsigned(item, &format) || format != 1)
        return ks_fail(r->error, KS_DEFINITION, "'format' is 1, the version of definitions that this server has");
    if (fuse && !ks_json_is_bool(fuse)) return ks_fail(r->error, KS_FIELD, "'fuse' is neither true nor false");
    if (description && !ks_json_is_text(description)) return ks_fail(r->error, KS_FIELD, "'description' is no text");
    r->definition->chain.unfused = fuse && !ks_json_is_true(fuse);
    return KS_OK;
}

static ks_status read_warm_one(ks_definition_reader *r, const ks_json *item, int64_t (*dims)[KS_RANK_MAX])
{
    const ks_chain *chain = &r->definition->chain;
    unsigned seen = 0;
    for (const ks_json *shape = ks_json_is_object(item) ? ks_json_first(item) : NULL; shape;
         shape = ks_json_next(shape)) {
        const char *key = ks_json_key(shape);
        const int input = ks_op_input(&chain->op, key, strlen(key));
        if (input < 0 || !ks_json_is_list(shape))
            return ks_fail(r->error, KS_DEFINITION, "'warm': '%s' is no input with a shape",
                           ks_quoted(key, strlen(key)).text);
        int rank = 0;
        for (const ks_json *dim = ks_json_first(shape); dim; dim = ks_json_next(dim), rank++) {
            uint64_t length = 0;
            if (rank == chain->in[input].rank || !ks_json_read_unsigned(dim, &length) || length > INT32_MAX) {
                rank = -1;
                break;
            }
            dims[input][rank] = (int64_t)length;
        }
        if (rank != chain->in[input].rank)
            return ks_fail(r->error, KS_DEFINITION, "'warm': the shape of '%s' has not %d lengths",
                           chain->in[input].name, chain->in[input].rank);
        seen |= 1u << input;
    }
    if (seen == (1u << chain->op.inputs_count) - 1) return KS_OK;
    return ks_fail(r->error, KS_DEFINITION, "'warm': a set of shapes has one for each of %d inputs",
                   chain->op.inputs_count);
}

static ks_status read_warm(ks_definition_reader *r)
{
    const ks_json *list;
    ks_status status = find_list(r, "warm", 0, KS_DEFINITION_WARM_MAX, &list);
    if (status != KS_OK || !list) return status;
    r->definition->warm_dims = calloc(KS_DEFINITION_WARM_MAX, sizeof *r->definition->warm_dims);
    if (!r->definition->warm_dims) return ks_fail(r->error, KS_MEMORY, "no memory for shapes to warm");
    for (const ks_json *item = ks_json_first(list); item && status == KS_OK; item = ks_json_next(item))
        status = read_warm_one(r, item, r->definition->warm_dims[r->definition->warm++]);
    return status;
}

static ks_status read_document(ks_definition_reader *r)
{
    static const char *const known[] = {"format", "description", "max_batch", "inputs", "initializers",
                                        "nodes",  "outputs",     "warm",      "fuse",   NULL};
    if (!ks_json_is_object(r->top)) return ks_fail(r->error, KS_FIELD, "a definition is an object");
    ks_status status = ks_definition_members(r, r->top, "the definition", known);
    if (status == KS_OK) status = read_format(r);
    if (status == KS_OK) status = read_inputs(r);
    if (status == KS_OK) status = read_batch(r);
    if (status == KS_OK) status = read_initializers(r);
    if (status == KS_OK) status = ks_definition_read_nodes(r);
    if (status == KS_OK) status = read_outputs(r);
    return status == KS_OK ? read_warm(r) : status;
}

static ks_status read_text(ks_definition *definition, ks_error *error)
{
    static const ks_scan_limits limits = {.json_head_max = HEAD_MAX,
                                          .string_max = STRING_MAX,
                                          .members_max = MEMBERS_MAX,
                                          .json_max = KS_DEFINITION_BYTES_MAX};
    ks_scan *scan = NULL;
    ks_json *top = NULL;
    ks_status status = ks_scan_begin(&limits, NULL, NULL, &scan, error);
    if (status != KS_OK) return status;
    status = ks_scan_feed(scan, definition->text, definition->text_length, error);
    if (status == KS_OK) status = ks_scan_end(scan, error);
    if (status == KS_OK) status = ks_json_open(scan, "a definition", &top, error);
    if (status == KS_OK) {
        ks_definition_reader *r = calloc(1, sizeof *r);
        if (r) {
            *r = (ks_definition_reader){.definition = definition, .top = top, .error = error};
            status = read_document(r);
        } else {
            status = ks_fail(error, KS_MEMORY, "no memory for a definition");
        }
        free(r);
    }
    ks_json_close(&top);
    ks_scan_fini(&scan);
    return status;
}

static void link_chain(ks_definition *definition)
{
    ks_chain *chain = &definition->chain;
    chain->constant = definition->constant;
    chain->node = definition->node;
    chain->word = definition->word;
    chain->op.outputs = definition->output_name;
    chain->op.outputs_max = chain->outputs;
    chain->op.in_rank = chain->in[0].rank;
    chain->op.chain = chain;
    chain->op.resolve = ks_chain_resolve;
    chain->op.nodes_decide = ks_chain_decides(chain);
    chain->op.refuse = ks_chain_refuse;
    chain->op.joins = ks_chain_joins;
    chain->op.read_bytes = ks_chain_read_bytes;
    chain->op.name = definition->model.name;
}

ks_status ks_definition_read(const char *name, const char *text, size_t length, ks_definition **out, ks_error *error)
{
    if (length > KS_DEFINITION_BYTES_MAX)
        return ks_fail(error, KS_BODY_SIZE, "a definition of %zu bytes exceeds the maximum allowed size of %d bytes",
                       length, KS_DEFINITION_BYTES_MAX);
    ks_definition *definition = calloc(1, sizeof *definition);
    if (definition) {
        definition->text = malloc(length + 1);
        definition->names = malloc(length + 1);
        definition->names_cap = length + 1;
    }
    if (!definition || !definition->text || !definition->names) {
        if (definition) ks_definition_free(&definition);
        return ks_fail(error, KS_MEMORY, "no memory for a definition of %zu bytes", length);
    }
    memcpy(definition->text, text, length);
    definition->text_length = length;
    definition->chain.words = 1;
    definition->word[0] = "the batch";
    snprintf(definition->model.name, sizeof definition->model.name, "%s", name);
    const ks_status status = read_text(definition, error);
    if (status != KS_OK) {
        ks_definition_free(&definition);
        return status;
    }
    link_chain(definition);
    *out = definition;
    return KS_OK;
}

void ks_definition_bind(ks_definition *definition, int initializer, const ks_tensor *tensor)
{
    definition->constant[initializer] = *tensor;
}

void ks_definition_free(ks_definition **pointer)
{
    ks_definition *definition = *pointer;
    *pointer = NULL;
    free(definition->initializer);
    free(definition->constant);
    free(definition->node);
    free(definition->text);
    free(definition->names);
    free(definition->data);
    free(definition->warm_dims);
    free(definition);
}
