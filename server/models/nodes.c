/* The nodes of a definition: operations with the parameters of requests, and reshapes. */
#include <stdio.h>
#include <string.h>

#include "base/number/number.h"
#include "base/text.h"
#include "codec/decode.h"
#include "models/reader.h"
#include "ops/layout.h"

/* The node's name, and what is said of it. */
typedef struct subject {
    char text[KS_CHAIN_NAME_MAX + 16];
    bool worded; /* its op is one of words[] */
} subject;

static const char reshape_word[] = "reshape";

/* What else a node may be called: operations of one op, with its parameters, or their shorter names. */
extern const ks_op ks_op_layout;
static const struct {
    const char *word;
    ks_layout_op op;
} words[] = {{"transpose", KS_LAYOUT_TRANSPOSE},
             {"slice", KS_LAYOUT_SLICE},
             {"pad", KS_LAYOUT_PAD},
             {"concat", KS_LAYOUT_CONCAT},
             {"split", KS_LAYOUT_SPLIT},
             {"expand", KS_LAYOUT_EXPAND},
             {"tile", KS_LAYOUT_TILE}};
static const struct {
    const char *shorter;
    int param;
} shorter_names[] = {{"perm", KS_LAYOUT_AXES},
                     {"start", KS_LAYOUT_STARTS},
                     {"end", KS_LAYOUT_ENDS},
                     {"step", KS_LAYOUT_STEPS},
                     {"shape", KS_LAYOUT_NEW_SHAPE}};

/* --- inputs and outputs ------------------------------------------------------------------------------------------------ */

static ks_status read_list(ks_definition_reader *r, const ks_json *item, const char *member, const subject *of,
                           const ks_json **out)
{
    *out = ks_json_member(item, member);
    if (*out && ks_json_is_list(*out)) return KS_OK;
    return ks_fail(r->error, KS_FIELD, "%s: '%s' is no list of names", of->text, member);
}

static ks_status read_inputs(ks_definition_reader *r, const ks_json *item, ks_chain_node *node, const subject *of)
{
    const ks_json *list;
    const int most = node->op ? node->op->inputs_count : 1;
    ks_status status = read_list(r, item, "inputs", of, &list);
    if (status != KS_OK) return status;
    for (item = ks_json_first(list); item; item = ks_json_next(item)) {
        const char *name = ks_json_text(item);
        if (!ks_json_is_text(item)) return ks_fail(r->error, KS_FIELD, "%s: an input is no name", of->text);
        if (node->inputs == most)
            return ks_fail(r->error, KS_COUNT, "%s: '%s' takes %d inputs at most", of->text,
                           node->op ? node->op->name : reshape_word, most);
        const int value = name[0] ? ks_definition_value(r, name) : -1;
        if (name[0] && value < 0)
            return ks_fail(r->error, KS_NAME, "%s: input '%s' is made by no node in front of it", of->text,
                           ks_quoted(name, strlen(name)).text);
        node->in[node->inputs++] = (int16_t)value;
    }
    const unsigned required = node->op ? ks_op_required(node->op) : 1;
    for (int i = 0; i < most; i++)
        if (required >> i & 1 && node->in[i] < 0)
            return ks_fail(r->error, KS_COUNT, "%s: '%s' needs its input %d%s%s", of->text,
                           node->op ? node->op->name : reshape_word, i, node->op ? ", " : "",
                           node->op ? node->op->inputs[i].role : "");
    return KS_OK;
}

static ks_status read_outputs(ks_definition_reader *r, const ks_json *item, ks_chain_node *node, const subject *of)
{
    const ks_json *list;
    const int most = node->op ? KS_OP_OUTPUTS_MAX : 1;
    ks_status status = read_list(r, item, "outputs", of, &list);
    if (status != KS_OK) return status;
    for (item = ks_json_first(list); item; item = ks_json_next(item)) {
        const char *name = "";
        if (node->outputs == most) return ks_fail(r->error, KS_COUNT, "%s: more than %d outputs", of->text, most);
        const int place = node->outputs++;
        if (ks_json_is_text(item) && !ks_json_text(item)[0]) continue;
        status = ks_definition_name(r, item, of->text, KS_CHAIN_NAME_MAX, &name);
        if (status == KS_OK && r->definition->chain.made == KS_CHAIN_MADE_MAX)
            return ks_fail(r->error, KS_DEFINITION, "%s: nodes make more than %d values", of->text, KS_CHAIN_MADE_MAX);
        if (status == KS_OK) status = ks_definition_add_value(r, name, of->text);
        if (status != KS_OK) return status;
        node->out[place] = (int16_t)(r->values - 1);
        r->definition->chain.made++;
    }
    if (node->outputs == 0 || (!node->op && node->out[0] < 0))
        return ks_fail(r->error, KS_COUNT, "%s: it has no output", of->text);
    return KS_OK;
}

/* --- parameters ------------------------------------------------------------------------------------------------------- */

/* Axes may come as a list; a request has them as text. Lists are read from text as well. */
static ks_status join_list(ks_definition_reader *r, const ks_json *list, const subject *of, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (const ks_json *item = ks_json_first(list); item; item = ks_json_next(item)) {
        const char *text = ks_json_text(item);
        if (!ks_json_is_number(item) || n + strlen(text) + 2 > cap)
            return ks_fail(r->error, KS_PARAMETER, "%s: parameter '%s' is a list of other things than numbers",
                           of->text, ks_quoted(ks_json_key(list), strlen(ks_json_key(list))).text);
        n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? "," : "", text);
    }
    return KS_OK;
}

/* -1: it has none of that name. A word is the parameter `op` of its operation. */
static int find_param(const ks_chain_node *node, bool worded, const char *name)
{
    const ks_op *op = node->op;
    if (worded && strcmp(op->params[KS_LAYOUT_OP].name, name) == 0) return -1;
    for (int i = 0; i < op->params_count; i++)
        if (strcmp(op->params[i].name, name) == 0) return i;
    for (size_t i = 0; worded && i < sizeof shorter_names / sizeof *shorter_names; i++)
        if (strcmp(shorter_names[i].shorter, name) == 0) return shorter_names[i].param;
    return -1;
}

static ks_status read_parameter(ks_definition_reader *r, const ks_json *item, ks_chain_node *node, const subject *of)
{
    enum { LIST_MAX = 256 };
    char list[LIST_MAX];
    const char *const key = ks_json_key(item);
    const ks_op *op = node->op;
    const int i = find_param(node, of->worded, key);
    if (i < 0)
        return ks_fail(r->error, KS_PARAMETER, "%s: '%s' has no parameter '%s'", of->text, op->name,
                       ks_quoted(key, strlen(key)).text);
    ks_param_value value = {.kind = KS_VALUE_OTHER, .text = ks_json_text(item)};
    if (ks_json_is_bool(item)) {
        value.kind = KS_VALUE_BOOL;
        value.text = ks_json_is_true(item) ? "true" : "false";
    } else if (ks_json_is_number(item) || ks_json_is_text(item)) {
        value.kind = ks_json_is_number(item) ? KS_VALUE_NUMBER : KS_VALUE_TEXT;
    } else if (ks_json_is_list(item) && (op->params[i].kind == KS_PARAM_AXES || op->params[i].kind == KS_PARAM_LIST)) {
        const ks_status status = join_list(r, item, of, list, sizeof list);
        if (status != KS_OK) return status;
        value = (ks_param_value){.kind = KS_VALUE_LIST, .text = list};
    }
    value.length = strlen(value.text);
    return ks_param_read(&op->params[i], &value, &(ks_param_owner){"node", node->name}, &node->params[i], node->lists,
                         r->error);
}

/* A reshape's own: a list, in which 0 keeps a dimension, one -1 takes the rest, and -2 - k is the input's dimension k. */
static ks_status read_shape(ks_definition_reader *r, const ks_json *item, ks_chain_node *node, const subject *of)
{
    int rests = 0;
    if (strcmp(ks_json_key(item), "shape") != 0)
        return ks_fail(r->error, KS_PARAMETER, "%s: reshape has no parameter '%s'", of->text,
                       ks_quoted(ks_json_key(item), strlen(ks_json_key(item))).text);
    if (!ks_json_is_list(item)) return ks_fail(r->error, KS_PARAMETER, "%s: 'shape' is no list", of->text);
    node->rank = 0;
    for (item = ks_json_first(item); item; item = ks_json_next(item)) {
        const char *text = ks_json_text(item);
        int64_t dim = 0;
        if (node->rank == KS_RANK_MAX)
            return ks_fail(r->error, KS_SHAPE, "%s: 'shape' has more than %d dimensions", of->text, KS_RANK_MAX);
        if (!ks_json_is_number(item) || ks_number_read(text, strlen(text), KS_INT64, &dim) != KS_NUMBER_OK ||
            dim < -1 - KS_RANK_MAX)
            return ks_fail(r->error, KS_SHAPE, "%s: 'shape' holds %s, which is no dimension, 0 or -1 to %d", of->text,
                           ks_quoted(text, strlen(text)).text, -1 - KS_RANK_MAX);
        rests += dim == -1;
        node->dims[node->rank++] = dim;
    }
    if (rests <= 1) return KS_OK;
    return ks_fail(r->error, KS_SHAPE, "%s: 'shape' has %d dimensions that take the rest, one can", of->text, rests);
}

static ks_status read_parameters(ks_definition_reader *r, const ks_json *item, ks_chain_node *node, const subject *of)
{
    const ks_json *object = ks_json_member(item, "parameters");
    ks_status status = KS_OK;
    if (object && !ks_json_is_object(object))
        return ks_fail(r->error, KS_FIELD, "%s: 'parameters' is no object", of->text);
    if (!node->op && !ks_json_member(object, "shape"))
        return ks_fail(r->error, KS_PARAMETER, "%s: reshape needs its parameter 'shape'", of->text);
    for (item = object ? ks_json_first(object) : NULL; item && status == KS_OK; item = ks_json_next(item))
        status = node->op ? read_parameter(r, item, node, of) : read_shape(r, item, node, of);
    return status;
}

/* --- nodes ------------------------------------------------------------------------------------------------------------ */

/* -1: none of these. */
static int find_word(const char *name)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, name) == 0) return (int)i;
    return -1;
}

static ks_status read_op(ks_definition_reader *r, const ks_json *item, ks_chain_node *node, subject *of)
{
    const ks_json *word = ks_json_member(item, "op");
    const char *name = ks_json_text(word);
    if (!ks_json_is_text(word)) return ks_fail(r->error, KS_DEFINITION, "%s: it has no 'op'", of->text);
    node->op = ks_op_find(name, strlen(name));
    const int found = node->op ? -1 : find_word(name);
    of->worded = found >= 0;
    if (of->worded) node->op = &ks_op_layout;
    if (!node->op && strcmp(name, reshape_word) != 0)
        return ks_fail(r->error, KS_DEFINITION, "%s: op '%s' is unknown", of->text, ks_quoted(name, strlen(name)).text);
    if (node->op) ks_params_init(node->op, node->params, node->lists);
    if (of->worded) node->params[KS_LAYOUT_OP].i = words[found].op;
    return KS_OK;
}

static ks_status read_node(ks_definition_reader *r, const ks_json *item, int index)
{
    static const char *const known[] = {"name", "op", "inputs", "outputs", "parameters", NULL};
    ks_chain_node *node = &r->definition->node[index];
    subject of = {.worded = false};
    snprintf(of.text, sizeof of.text, "node %d", index);
    if (!ks_json_is_object(item)) return ks_fail(r->error, KS_FIELD, "%s is no object", of.text);
    memset(node->in, -1, sizeof node->in);
    memset(node->out, -1, sizeof node->out);
    ks_status status = ks_definition_name(r, ks_json_member(item, "name"), of.text, KS_CHAIN_NAME_MAX, &node->name);
    if (status != KS_OK) return status;
    snprintf(of.text, sizeof of.text, "node '%s'", node->name);
    for (int i = 0; i < index; i++)
        if (strcmp(r->definition->node[i].name, node->name) == 0)
            return ks_fail(r->error, KS_NAME, "%s: nodes %d and %d have that name", of.text, i, index);
    status = ks_definition_members(r, item, of.text, known);
    if (status == KS_OK) status = read_op(r, item, node, &of);
    if (status == KS_OK) status = read_inputs(r, item, node, &of);
    if (status == KS_OK) status = read_parameters(r, item, node, &of);
    if (status == KS_OK) status = read_outputs(r, item, node, &of);
    return status;
}

ks_status ks_definition_read_nodes(ks_definition_reader *r)
{
    const ks_json *list = ks_json_member(r->top, "nodes");
    ks_status status = KS_OK;
    if (!list || !ks_json_is_list(list)) return ks_fail(r->error, KS_DEFINITION, "'nodes' is no list");
    for (const ks_json *item = ks_json_first(list); item && status == KS_OK; item = ks_json_next(item)) {
        if (r->definition->chain.nodes == KS_CHAIN_NODES_MAX)
            return ks_fail(r->error, KS_DEFINITION, "'nodes' has more than %d", KS_CHAIN_NODES_MAX);
        status = read_node(r, item, r->definition->chain.nodes);
        r->definition->chain.nodes++;
    }
    if (status == KS_OK && r->definition->chain.nodes == 0) return ks_fail(r->error, KS_DEFINITION, "'nodes' is empty");
    return status;
}
