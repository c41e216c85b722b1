/* Owns       nothing.
 * Interface  definition_writer.h
 * How        Each node is resolved as it is written, with shapes that its inputs may have; most of those that cannot be are left out. */
#include "definition_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernserve/op.h"

enum { VALUES_MAX = 96, NODES_MAX = 12, TRIES = 3, COUNT_MAX = 64, ELEMENTS_MAX = 1 << 14 };

typedef struct writer {
    const uint8_t *choices;
    size_t left, length;
    char *text;
    ks_tensor value[VALUES_MAX]; /* called v0, v1 and so on */
    int values, inputs, nodes;
    bool given[VALUES_MAX]; /* as an output of the whole */
} writer;

static int choose(writer *w, int of)
{
    if (w->left == 0) return 0;
    w->left--;
    return *w->choices++ % of;
}

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list more;
    va_start(more, format);
    const int n = vsnprintf(w->text + w->length, DEFINITION_TEXT_MAX - w->length, format, more);
    va_end(more);
    w->length += (size_t)n;
    assert(w->length < DEFINITION_TEXT_MAX);
}

static int add(writer *w, const ks_tensor *tensor)
{
    ks_error ignored;
    ks_tensor *to = &w->value[w->values];
    *to = (ks_tensor){.dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(to->dims, tensor->dims, sizeof to->dims);
    (void)ks_tensor_measure(to, "a value", &ignored);
    return w->values++;
}

static bool has_room(const writer *w)
{
    return w->values < VALUES_MAX - KS_OP_OUTPUTS_MAX;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static ks_tensor choose_tensor(writer *w)
{
    static const int64_t lengths[] = {4, 16, 1, 2, 3, 8, 32, 5}; /* rows of 16 FP32 are views where they are sliced */
    ks_tensor out = {.dtype = choose(w, 3) ? KS_FP32 : (ks_dtype)choose(w, KS_BYTES), .rank = choose(w, 5)};
    for (int i = 0; i < out.rank; i++) out.dims[i] = lengths[choose(w, sizeof lengths / sizeof *lengths)];
    const int like = w->values ? choose(w, 2 * w->values) : 0; /* often one that fits another one */
    if (like < w->values) {
        out.rank = w->value[like].rank;
        memcpy(out.dims, w->value[like].dims, sizeof out.dims);
    }
    return out;
}

static void put_shape(writer *w, const ks_tensor *tensor, const char *first)
{
    put(w, "[");
    for (int i = 0; i < tensor->rank; i++) {
        if (i == 0 && first)
            put(w, "%s", first);
        else
            put(w, "%s%" PRId64, i ? "," : "", tensor->dims[i]);
    }
    put(w, "]");
}

/* The first length may be free: what nodes make of it is tried with one that it may have. */
static void write_inputs(writer *w)
{
    static const char *const free_words[] = {NULL, NULL, "-1", "\"n\""};
    const int count = 1 + choose(w, 4), word = choose(w, 4);
    put(w, "\"inputs\":[");
    for (int i = 0; i < count; i++) {
        ks_tensor tensor = choose_tensor(w);
        if (free_words[word] && tensor.rank > 0) tensor.dims[0] = word == 2 ? 2 : 48;
        put(w, "%s{\"name\":\"v%d\",\"datatype\":\"%s\",\"shape\":", i ? "," : "", w->values,
            ks_dtype_name(tensor.dtype));
        put_shape(w, &tensor, free_words[word]);
        put(w, "}");
        add(w, &tensor);
    }
    w->inputs = w->values;
    put(w, "]");
}

static void put_elements(writer *w, const ks_tensor *tensor)
{
    static const char *const numbers[] = {"0", "1", "2", "3", "0.5", "-1", "-2.25", "16"};
    const bool whole = ks_dtype_kind(tensor->dtype) != KS_KIND_FLOAT, truth = tensor->dtype == KS_BOOL;
    const int64_t count = ks_tensor_count(tensor);
    const int from = choose(w, 8);
    put(w, ",\"data\":[");
    for (int64_t i = 0; i < count; i++) {
        const int at = (from + (int)i) % (whole ? 4 : 8);
        put(w, "%s%s", i ? "," : "", truth ? (at & 1 ? "true" : "false") : numbers[at]);
    }
    put(w, "]");
}

/* One of the fuzzer's resident tensors: their names say what they are. */
static ks_tensor resident(int letter)
{
    ks_tensor tensor = {.dtype = letter >= 'i' && letter <= 'l' ? KS_INT32 : KS_FP32, .rank = 2, .dims = {4, 4}};
    if (letter <= 'd') tensor.dims[1] = 3;
    if (letter >= 'e' && letter <= 'h') tensor.rank = 1, tensor.dims[1] = 0;
    return tensor;
}

static void write_initializers(writer *w)
{
    const int count = choose(w, 5);
    put(w, ",\"initializers\":[");
    for (int i = 0; i < count; i++) {
        const int letter = 'a' + 4 * choose(w, 4);
        ks_tensor tensor = choose(w, 3) ? choose_tensor(w) : resident(letter);
        put(w, "%s{\"name\":\"v%d\"", i ? "," : "", w->values);
        if (ks_tensor_count(&tensor) <= COUNT_MAX && choose(w, 4)) {
            put(w, ",\"datatype\":\"%s\",\"shape\":", ks_dtype_name(tensor.dtype));
            put_shape(w, &tensor, NULL);
            put_elements(w, &tensor);
        } else {
            tensor = resident(letter);
            put(w, ",\"tensor\":\"%c\"", letter);
        }
        put(w, "}");
        add(w, &tensor);
    }
    put(w, "]");
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* -1: none was found that the op takes there. Later values are chosen more often. */
static int choose_value(writer *w, const ks_op *op, int input)
{
    for (int i = 0; i < 8; i++) {
        const int at = w->values - 1 - (choose(w, 2) ? choose(w, w->values) : choose(w, 2)) % w->values;
        const ks_tensor *tensor = &w->value[at];
        const bool fits = tensor->rank >= op->inputs[input].rank_min && tensor->rank <= op->inputs[input].rank_max;
        if (fits && ks_op_dtypes(op, input) >> tensor->dtype & 1) return at;
    }
    return -1;
}

static bool choose_inputs(writer *w, ks_spec *spec, int in[KS_OP_INPUTS_MAX])
{
    const unsigned required = ks_op_required(spec->op);
    spec->given = 0;
    for (int i = 0; i < spec->op->inputs_count; i++) {
        in[i] = -1;
        if (!(required >> i & 1) && choose(w, 4) < 3) continue;
        in[i] = choose_value(w, spec->op, i);
        if (in[i] < 0 && required >> i & 1) return false;
        if (in[i] < 0) continue;
        spec->in[i] = w->value[in[i]];
        spec->given |= (uint16_t)(1u << i);
    }
    return true;
}

static void choose_axes(writer *w, int rank, ks_axes *out)
{
    out->count = (int8_t)(choose(w, 4) ? 1 + choose(w, rank ? rank : 1) : -1);
    for (int i = 0; i < out->count; i++) out->axis[i] = (int8_t)((choose(w, rank + 1) + i) % (rank ? rank : 1));
}

static void choose_param(writer *w, ks_spec *spec, int p)
{
    static const double numbers[] = {1, 0, -1, 0.5, 1e-5, 2, 3, -0.25};
    static const int64_t integers[] = {1, 2, 0, -1, 3, 4, 8, 5};
    const ks_param *param = &spec->op->params[p];
    ks_value *value = &spec->params[p];
    int choices = 0;
    switch (param->kind) {
    case KS_PARAM_INT:
        value->i = integers[choose(w, 8)];
        break;
    case KS_PARAM_BOOL:
        value->i = choose(w, 2);
        break;
    case KS_PARAM_NUMBER:
        value->d = numbers[choose(w, 8)];
        break;
    case KS_PARAM_CHOICE:
        while (param->choices[choices]) choices++;
        value->i = choose(w, choices);
        break;
    case KS_PARAM_AXES:
        memset(value, 0, sizeof *value);
        choose_axes(w, spec->in[0].rank, &value->axes);
        break;
    case KS_PARAM_LIST: {
        ks_integers *list = ks_spec_list(spec, p);
        *list = (ks_integers){.count = choose(w, 2) ? spec->in[0].rank : choose(w, 5)};
        for (int i = 0; i < list->count; i++)
            list->value[i] = choose(w, 2) ? spec->in[0].dims[i] : (int64_t)choose(w, 9) - 2;
        break;
    }
    }
}

static void put_list(writer *w, const ks_integers *list)
{
    put(w, "[");
    for (int i = 0; i < list->count; i++) put(w, "%s%" PRId64, i ? "," : "", list->value[i]);
    put(w, "]");
}

static void put_param(writer *w, const ks_spec *spec, int p)
{
    const ks_param *param = &spec->op->params[p];
    const ks_value *value = &spec->params[p];
    put(w, "\"%s\":", param->name);
    if (param->kind == KS_PARAM_INT) put(w, "%" PRId64, value->i);
    if (param->kind == KS_PARAM_BOOL) put(w, value->i ? "true" : "false");
    if (param->kind == KS_PARAM_NUMBER) put(w, "%.9g", value->d);
    if (param->kind == KS_PARAM_CHOICE) put(w, "\"%s\"", param->choices[value->i]);
    if (param->kind == KS_PARAM_LIST) put_list(w, ks_list_of(spec, p));
    if (param->kind != KS_PARAM_AXES) return;
    ks_integers list = {.count = value->axes.count};
    for (int i = 0; i < list.count; i++) list.value[i] = value->axes.axis[i];
    if (list.count < 0)
        put(w, "\"all\"");
    else
        put_list(w, &list);
}

static void put_node(writer *w, const ks_spec *spec, const int *in, unsigned chosen, int outputs)
{
    bool more = false;
    put(w, "%s{\"name\":\"n%d\",\"op\":\"%s\",\"inputs\":[", w->nodes ? "," : "", w->nodes, spec->op->name);
    w->nodes++;
    for (int i = 0; i < spec->op->inputs_count && spec->given >> i; i++)
        if (in[i] >= 0)
            put(w, "%s\"v%d\"", i ? "," : "", in[i]);
        else
            put(w, "%s\"\"", i ? "," : "");
    put(w, "],\"outputs\":[");
    for (int i = 0; i < outputs; i++) put(w, "%s\"v%d\"", i ? "," : "", w->values + i);
    put(w, "],\"parameters\":{");
    for (int p = 0; p < spec->op->params_count; p++) {
        if (!(chosen >> p & 1)) continue;
        if (more) put(w, ",");
        put_param(w, spec, p);
        more = true;
    }
    put(w, "}}");
}

/* false: it cannot be, and is left out. */
static bool write_op(writer *w, const ks_op *op)
{
    ks_spec spec, resolved;
    ks_error ignored;
    int in[KS_OP_INPUTS_MAX];
    unsigned chosen = 0;
    ks_spec_init(&spec, op);
    if (!choose_inputs(w, &spec, in)) return false;
    for (int p = 0; p < op->params_count; p++) {
        if (choose(w, 3) == 0) continue;
        choose_param(w, &spec, p);
        chosen |= 1u << p;
    }
    resolved = spec;
    resolved.outputs = 0;
    const bool right = op->resolve(&resolved, &ignored) == KS_OK;
    if (!right && choose(w, 16) < 15) return false;
    const int outputs = right && resolved.outputs <= KS_OP_OUTPUTS_MAX ? resolved.outputs : 1;
    for (int i = 0; right && i < outputs; i++)
        if (ks_tensor_count(&resolved.out[i]) > ELEMENTS_MAX) return false;
    put_node(w, &spec, in, chosen, outputs);
    for (int i = 0; i < outputs; i++) add(w, right ? &resolved.out[i] : &w->value[0]);
    return true;
}

/* All in one dimension, or all behind the first one, or one more in front. */
static void write_reshape(writer *w)
{
    const int from = choose(w, w->values), form = choose(w, 3);
    const ks_tensor *in = &w->value[from];
    ks_tensor out = {.dtype = in->dtype, .rank = 1, .dims = {ks_tensor_count(in)}};
    put(w, "%s{\"name\":\"n%d\",\"op\":\"reshape\",\"inputs\":[\"v%d\"],\"outputs\":[\"v%d\"],", w->nodes ? "," : "",
        w->nodes, from, w->values);
    w->nodes++;
    if (form == 0 || in->rank == 0) {
        put(w, "\"parameters\":{\"shape\":[-1]}}");
    } else if (form == 1) {
        put(w, "\"parameters\":{\"shape\":[0,-1]}}");
        out.rank = 2;
        out.dims[0] = in->dims[0];
        out.dims[1] = in->dims[0] ? ks_tensor_count(in) / in->dims[0] : 0;
    } else {
        put(w, "\"parameters\":{\"shape\":[1,-1,%" PRId64 "]}}", in->dims[in->rank - 1]);
        out.rank = 3;
        out.dims[0] = 1;
        out.dims[2] = in->dims[in->rank - 1];
        out.dims[1] = out.dims[2] ? ks_tensor_count(in) / out.dims[2] : 0;
    }
    add(w, &out);
}

/* Some of the first dimension, by the shorter name. */
static bool write_slice(writer *w)
{
    const int from = w->values - 1 - choose(w, w->values);
    ks_tensor out = w->value[from];
    if (out.rank == 0 || out.dims[0] < 2) return false;
    const int rows = (int)out.dims[0], start = choose(w, rows), end = start + 1 + choose(w, rows - start);
    put(w,
        "%s{\"name\":\"n%d\",\"op\":\"slice\",\"inputs\":[\"v%d\"],\"outputs\":[\"v%d\"],\"parameters\":"
        "{\"axis\":0,\"start\":%d,\"end\":%d}}",
        w->nodes ? "," : "", w->nodes, from, w->values, start, end);
    w->nodes++;
    out.dims[0] = end - start;
    add(w, &out);
    return true;
}

static bool fit(const ks_tensor *a, const ks_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->rank > 0 &&
           memcmp(a->dims + 1, b->dims + 1, sizeof a->dims - sizeof a->dims[0]) == 0;
}

/* Values one behind the other, that fit: nodes in front make them in their parts. */
static bool write_concat(writer *w)
{
    int in[4] = {w->values - 1 - choose(w, w->values)}, count = 1;
    ks_tensor out = w->value[in[0]];
    for (int tries = 0; tries < 8 && count < 4; tries++) {
        const int at = w->values - 1 - choose(w, w->values);
        if (!fit(&out, &w->value[at])) continue;
        in[count++] = at;
        out.dims[0] += w->value[at].dims[0];
    }
    if (count < 2) return false;
    put(w, "%s{\"name\":\"n%d\",\"op\":\"concat\",\"inputs\":[", w->nodes ? "," : "", w->nodes);
    w->nodes++;
    for (int i = 0; i < count; i++) put(w, "%s\"v%d\"", i ? "," : "", in[i]);
    put(w, "],\"outputs\":[\"v%d\"],\"parameters\":{\"axis\":0}}", w->values);
    add(w, &out);
    return true;
}

static void write_node(writer *w, int ops)
{
    const int form = choose(w, 8);
    const int which = form < 5 ? choose(w, ops + 1) : 4; /* maps join others */
    if ((form == 6 && write_slice(w)) || (form == 7 && write_concat(w))) return;
    if (which == ops)
        write_reshape(w);
    else
        for (int tries = 0; tries < TRIES && !write_op(w, ks_ops[which]);) tries++;
}

static void write_nodes(writer *w)
{
    int ops = 0;
    while (ks_ops[ops]) ops++;
    const int count = 1 + choose(w, NODES_MAX);
    put(w, ",\"nodes\":[");
    for (int i = 0; i < count && has_room(w); i++) write_node(w, ops);
    put(w, "]");
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void write_outputs(writer *w)
{
    const int count = 1 + choose(w, 3);
    bool more = false;
    put(w, ",\"outputs\":[");
    for (int i = 0; i < count; i++) {
        const int at = w->values - 1 - choose(w, i ? w->values : 2) % w->values;
        if (w->given[at] && choose(w, 16) < 15) continue;
        w->given[at] = true;
        put(w, "%s{\"name\":\"v%d\"", more ? "," : "", at);
        more = true;
        if (choose(w, 4) == 3) {
            put(w, ",\"datatype\":\"%s\",\"shape\":", ks_dtype_name(w->value[at].dtype));
            put_shape(w, &w->value[at], choose(w, 2) && w->value[at].rank ? "-1" : NULL);
        }
        put(w, "}");
    }
    put(w, "]");
}

size_t definition_write(const uint8_t *choices, size_t size, char text[DEFINITION_TEXT_MAX])
{
    static writer w;
    w = (writer){.choices = choices, .left = size, .text = text};
    put(&w, "{\"format\":1,");
    if (choose(&w, 4) == 3) put(&w, "\"max_batch\":%d,", 1 + choose(&w, 64));
    if (choose(&w, 4) == 3) put(&w, "\"fuse\":false,");
    write_inputs(&w);
    write_initializers(&w);
    write_nodes(&w);
    write_outputs(&w);
    put(&w, "}");
    return w.length;
}
