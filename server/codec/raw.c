/* Bodies without JSON. The query may name resident tensors for inputs, shape (one per other input), datatype (one, or one per
 * shape), inputs where not the first ones are meant or the body has them in another order, an output, and parameters; OIP's own raw request
 * (Inference-Header-Content-Length: 0) may leave the shape to the body's length. No allocation. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/number/number.h"
#include "base/util.h"
#include "codec/codec_parts.h"

/* Percent-decodes [p, end) to a terminated text; -1: a broken escape, a NUL, or no room. '+' stays as it is: "1e+05".
 */
static int decode(const char *p, const char *end, char *out, int cap)
{
    int n = 0;
    if (!memchr(p, '%', (size_t)(end - p))) {
        if (end - p >= cap) return -1;
        n = (int)(end - p);
        memcpy(out, p, (size_t)n);
        p = end;
    }
    while (p < end) {
        char c = *p++;
        if (c == '%') {
            const int byte = ks_percent_byte(p, end);
            if (byte < 0) return -1;
            c = (char)byte;
            p += 2;
        }
        if (c == 0 || n + 1 >= cap) return -1;
        out[n++] = c;
    }
    out[n] = 0;
    return n;
}

typedef ks_query_pair query_pair;

bool ks_query_next(const char **query, ks_query_pair *pair)
{
    const char *p = *query;
    if (*p == 0) return false;
    const char *const end = strchrnul(p, '&');
    const char *const equals = memchr(p, '=', (size_t)(end - p));
    const bool named = decode(p, equals ? equals : end, pair->name, (int)sizeof pair->name) >= 0;
    if (!named) strcpy(pair->name, "?");
    pair->value_length = equals && named ? decode(equals + 1, end, pair->value, (int)sizeof pair->value) : 0;
    if (!equals || !named) pair->value[0] = 0;
    *query = *end ? end + 1 : end;
    return true;
}

bool ks_codec_query_is_raw(const char *query)
{
    query_pair pair;
    while (ks_query_next(&query, &pair))
        if (strcmp(pair.name, "shape") == 0 ||
            (pair.value[0] == '@' && strncasecmp(pair.name, "input", 5) == 0 && ks_codec_names_tensor(pair.name)))
            return true;
    return false;
}

ks_status ks_codec_check_query(ks_codec *codec, const char *query, ks_error *error)
{
    query_pair pair;
    ks_status status = KS_OK;
    while (status == KS_OK && ks_query_next(&query, &pair))
        if (pair.name[0]) status = ks_codec_unknown(codec, KS_NAME_BESIDE_JSON, pair.name, error);
    codec->query_warned = codec->request.warned;
    return status;
}

ks_status ks_query_dims(const char *text, size_t length, ks_tensor *tensor, ks_error *error)
{
    tensor->rank = 0;
    const char *const end = text + length;
    while (text < end || tensor->rank > 0) {
        const char *const comma = memchr(text, ',', (size_t)(end - text));
        const char *const stop = comma ? comma : end;
        if (tensor->rank == KS_RANK_MAX)
            return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': more than %d dimensions", KS_RANK_MAX);
        int64_t *dim = &tensor->dims[tensor->rank++];
        if (*text == '-' || ks_number_read(text, (size_t)(stop - text), KS_INT64, dim) != KS_NUMBER_OK)
            return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': '%s' is not a dimension",
                           ks_quoted(text, (size_t)(stop - text)).text);
        if (!comma) break;
        text = comma + 1;
    }
    return KS_OK;
}

static ks_status query_shape(ks_codec *codec, const char *text, size_t length, ks_error *error)
{
    const ks_model *model = codec->request.model;
    if (codec->query_shapes == model->op->inputs_count)
        return ks_fail(error, KS_NAME, "expected %d inputs but the query has more shapes for model '%s'",
                       model->op->inputs_count, model->name);
    return ks_query_dims(text, length, &codec->request.spec.in[codec->query_shapes++], error);
}

static ks_status twice(ks_error *error)
{
    return ks_fail(error, KS_DATATYPE, "the query names 'datatype' twice");
}

static ks_status query_datatype(ks_codec *codec, const char *text, size_t length, ks_error *error)
{
    const ks_op *op = codec->request.model->op;
    ks_dtype dtype;
    if (codec->query_datatypes == op->inputs_count) return twice(error);
    if (!ks_dtype_find(text, length, &dtype))
        return ks_fail(error, KS_DATATYPE, "data-type '%s' is unknown", ks_quoted(text, length).text);
    codec->query_datatype[codec->query_datatypes++] = dtype;
    return KS_OK;
}

static ks_status query_input(ks_codec *codec, const char *text, size_t length, ks_error *error)
{
    const ks_model *model = codec->request.model;
    const int input = ks_op_input(model->op, text, length);
    if (input < 0)
        return ks_fail(error, KS_NAME, "unexpected inference input '%s' for model '%s'", ks_quoted(text, length).text,
                       model->name);
    for (int i = 0; i < codec->query_inputs; i++)
        if (codec->query_input[i] == input)
            return ks_fail(error, KS_NAME, "input '%s' already exists in request", model->op->inputs[input].name);
    codec->query_input[codec->query_inputs++] = input;
    return KS_OK;
}

static ks_status query_output(ks_codec *codec, const char *text, size_t length, ks_error *error)
{
    const ks_model *model = codec->request.model;
    for (int i = 0; i < model->outputs_max; i++) {
        const char *const name = ks_op_output(model->op, i);
        if (strlen(name) != length || memcmp(text, name, length) != 0) continue;
        if (ks_in(codec->request.outputs, i))
            return ks_fail(error, KS_NAME, "output '%s' already exists in request", name);
        codec->request.outputs |= (uint16_t)(1u << i);
        return KS_OK;
    }
    return ks_fail(error, KS_NAME, "unexpected inference output '%s' for model '%s'", ks_quoted(text, length).text,
                   model->name);
}

/* What only a body without a head of its own leaves to the query. */
static ks_status query_tensor(ks_codec *codec, const query_pair *pair, bool *known, ks_error *error)
{
    const size_t length = (size_t)pair->value_length;
    *known = true;
    if (strcmp(pair->name, "shape") == 0) return query_shape(codec, pair->value, length, error);
    if (strcmp(pair->name, "datatype") == 0) return query_datatype(codec, pair->value, length, error);
    if (strcmp(pair->name, "input") == 0) return query_input(codec, pair->value, length, error);
    *known = false;
    return KS_OK;
}

/* One pair that can be decoded. */
static ks_status query_one(ks_codec *codec, const query_pair *pair, ks_error *error)
{
    const bool raw = codec->request.format == KS_BODY_FORMAT_OIP_RAW || codec->request.format == KS_BODY_FORMAT_RAW;
    const ks_param_value value = {.kind = KS_VALUE_QUERY, .text = pair->value, .length = (size_t)pair->value_length};
    bool known = false;
    const ks_status status = raw ? query_tensor(codec, pair, &known, error) : KS_OK;
    if (known || status != KS_OK) return status;
    if (!raw &&
        (strcmp(pair->name, "shape") == 0 || strcmp(pair->name, "datatype") == 0 || strcmp(pair->name, "input") == 0))
        return ks_fail(error, KS_PARAMETER, "the query names '%s', which the body itself says", pair->name);
    if (strcmp(pair->name, "output") == 0) return query_output(codec, value.text, value.length, error);
    const char second = (char)(pair->name[0] ? pair->name[1] | 0x20 : 0); /* of input, output, ttl: few other names */
    const bool may_name = second == 'n' || second == 'u' || second == 't';
    const ks_status named = may_name ? ks_codec_query_tensor(codec, pair->name, pair->value, &known, error) : KS_OK;
    if (known || named != KS_OK) return named;
    return ks_codec_parameter(codec, pair->name, &value, error);
}

ks_status ks_codec_read_query(ks_codec *codec, const char *query, ks_error *error)
{
    query_pair pair;
    while (ks_query_next(&query, &pair)) {
        if (pair.name[0] == 0) continue;
        if (pair.value_length < 0)
            return ks_fail(error, KS_PARAMETER, "the query's '%s' is too long or badly encoded",
                           ks_quoted(pair.name, strlen(pair.name)).text);
        const ks_status status = query_one(codec, &pair, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* The query's shapes go to the inputs that it names. */
static __attribute__((noinline)) void sort_inputs(ks_codec *codec)
{
    ks_spec *spec = &codec->request.spec;
    ks_tensor tensors[KS_INPUTS_MAX];
    memcpy(tensors, spec->in, sizeof tensors);
    memset(spec->in, 0, sizeof spec->in);
    spec->given = 0;
    for (int i = 0; i < codec->query_shapes; i++) {
        spec->in[codec->query_input[i]] = tensors[i];
        spec->given |= (uint16_t)(1u << codec->query_input[i]);
    }
}

/* The inputs of a preset's metadata, where they are not the first ones; else none. */
static unsigned declared_apart(const ks_model *model)
{
    const unsigned declared = model->declared;
    return declared & (declared + 1) && declared & ~(unsigned)ks_op_required(model->op) ? declared : 0;
}

/* Shapes that the query gives to no input go to those of `left`, in order: to a preset's own, and then to the others. */
static void name_in_order(ks_codec *codec, unsigned left)
{
    unsigned first = left & declared_apart(codec->request.model), others = left & ~first;
    for (int i = codec->query_inputs; i < codec->query_shapes; i++) {
        unsigned *from = first ? &first : &others;
        codec->query_input[i] = __builtin_ctz(*from);
        *from &= *from - 1;
    }
    sort_inputs(codec);
}

static unsigned all_inputs(const ks_model *model)
{
    return (1u << model->op->inputs_count) - 1;
}

/* Beside resident tensors shapes belong to the inputs that are not named. */
static __attribute__((noinline)) ks_status name_others(ks_codec *codec, ks_error *error)
{
    const ks_model *model = codec->request.model;
    const unsigned resident = codec->request.resident, left = all_inputs(model) & ~resident;
    for (int i = 0; i < codec->query_inputs; i++)
        if (ks_in(resident, codec->query_input[i]))
            return ks_fail(error, KS_NAME, "input '%s' already exists in request",
                           model->op->inputs[codec->query_input[i]].name);
    if (codec->query_shapes > __builtin_popcount(left))
        return ks_fail(error, KS_NAME, "the query has %d shapes for %d inputs of model '%s' that it does not name",
                       codec->query_shapes, __builtin_popcount(left), model->name);
    name_in_order(codec, left);
    return ks_codec_hold_query(codec, error);
}

/* What each shape is of: those that the query names, or a preset's, or the first ones. */
static ks_status name_inputs(ks_codec *codec, ks_error *error)
{
    const ks_model *model = codec->request.model;
    const unsigned required = codec->request.spec.given;
    if (codec->query_inputs != 0 && codec->query_inputs != codec->query_shapes)
        return ks_fail(error, KS_NAME, "the query names %d inputs and %d shapes", codec->query_inputs,
                       codec->query_shapes);
    if (codec->request.resident || codec->request.stored || codec->query_ttl) {
        const ks_status status = name_others(codec, error);
        if (status != KS_OK) return status;
    } else if (codec->query_inputs > 0) {
        sort_inputs(codec);
    } else if (declared_apart(model)) {
        name_in_order(codec, all_inputs(model));
    } else {
        for (int i = 0; i < codec->query_shapes; i++) codec->query_input[i] = i;
        codec->request.spec.given = (uint16_t)((1u << codec->query_shapes) - 1);
    }
    const unsigned missing = required & ~(unsigned)codec->request.spec.given;
    if (missing)
        return ks_fail(error, KS_NAME, "the query has no shape for input '%s' of model '%s'",
                       model->op->inputs[__builtin_ctz(missing)].name, model->name);
    return KS_OK;
}

/* Of the inputs whose datatype the query leaves out: that of the first resident tensor where they take it (lengths beside keys do not, nor
 * an input whose definition says another), or the model's. */
static ks_dtype other_datatype(const ks_codec *codec, int input)
{
    const ks_model *model = codec->request.model;
    const unsigned resident = codec->request.resident;
    const ks_dtype held = resident ? codec->request.spec.in[__builtin_ctz(resident)].dtype : model->dtype;
    return resident && ks_op_dtypes(model->op, input) & KS_DTYPE_BIT(held) ? held : ks_model_dtype(model, input);
}

/* Where every input is a resident tensor the query's datatype has to be that of the first. */
static ks_status check_only_datatype(const ks_codec *codec, ks_error *error)
{
    const int input = __builtin_ctz(codec->request.resident);
    const ks_dtype held = codec->request.spec.in[input].dtype;
    if (codec->query_datatype[0] == held) return KS_OK;
    return ks_fail(error, KS_DATATYPE, "the query's datatype is %s, and tensor '%s' has %s",
                   ks_dtype_name(codec->query_datatype[0]), codec->request.tensor[input], ks_dtype_name(held));
}

static ks_status name_datatypes(ks_codec *codec, ks_error *error)
{
    const ks_model *model = codec->request.model;
    if (codec->query_datatypes > 1 && codec->query_shapes <= 1) return twice(error);
    if (codec->query_datatypes > 1 && codec->query_datatypes != codec->query_shapes)
        return ks_fail(error, KS_DATATYPE, "the query names %d datatypes and %d shapes", codec->query_datatypes,
                       codec->query_shapes);
    for (int i = 0; i < codec->query_shapes; i++) {
        const int input = codec->query_input[i];
        ks_dtype *dtype = &codec->request.spec.in[input].dtype;
        *dtype = codec->query_datatypes == 0 ? other_datatype(codec, input)
                                             : codec->query_datatype[codec->query_datatypes > 1 ? i : 0];
        const ks_status status = ks_codec_check_dtype(codec, input, model->op->inputs[input].name, *dtype, error);
        if (status != KS_OK) return status;
    }
    return codec->query_shapes == 0 && codec->query_datatypes == 1 ? check_only_datatype(codec, error) : KS_OK;
}

/* Shapes are known: one segment of the body per input, in the query's order. */
static ks_status raw_resolve(ks_codec *codec, ks_error *error)
{
    ks_spec *spec = &codec->request.spec;
    const ks_model *model = codec->request.model;
    const ks_input *row = model->op->inputs;
    uint64_t expected = 0;
    codec->segments = codec->query_shapes;
    for (int i = 0; i < codec->segments; i++) {
        const int input = codec->query_input[i];
        const ks_status status = ks_tensor_measure(&spec->in[input], row[input].name, error);
        if (status != KS_OK) return status;
        codec->segment[i] = (ks_segment){.input = input, .bytes = spec->in[input].size_bytes};
        if (__builtin_add_overflow(expected, (uint64_t)codec->segment[i].bytes, &expected)) expected = UINT64_MAX;
    }
    if (codec->content_length >= 0 && (uint64_t)codec->content_length != expected)
        return ks_fail(error, KS_BINARY_SIZE,
                       "input byte size mismatch for %s%s%s for model '%s'. Expected %" PRIu64 ", got %" PRId64,
                       codec->segments == 1 ? "input '" : "all inputs",
                       codec->segments == 1 ? row[codec->segment[0].input].name : "", codec->segments == 1 ? "'" : "",
                       model->name, expected, codec->content_length);
    if (expected > codec->limits.max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "Raw input has a byte_size (%" PRIu64 ") that exceeds the maximum allowed value of %" PRIu64
                       ". Use --max-body to increase the limit.",
                       expected, codec->limits.max_body);
    const ks_status status = ks_codec_resolve(codec, error);
    return status == KS_OK ? ks_codec_place_tensors(codec, error) : status;
}

/* The query has a shape for each required input. */
static ks_status raw_shaped(ks_codec *codec, ks_error *error)
{
    ks_status status = name_inputs(codec, error);
    if (status == KS_OK) status = name_datatypes(codec, error);
    return status == KS_OK ? raw_resolve(codec, error) : status;
}

ks_status ks_codec_raw_begin(ks_codec *codec, const char *query, ks_error *error)
{
    const ks_model *model = codec->request.model;
    ks_status status = ks_codec_read_query(codec, query, error);
    if (status != KS_OK) return status;
    const unsigned wanted = codec->request.spec.given & ~(unsigned)codec->request.resident;
    const int inputs = wanted & (wanted - 1) ? __builtin_popcount(wanted) : wanted != 0;
    if (codec->request.format == KS_BODY_FORMAT_OIP_RAW && inputs > 1)
        return ks_fail(
            error, KS_NAME,
            "Raw request must only have 1 input (found 1) to be deduced but got %d inputs in '%s' model configuration",
            inputs, model->name);
    if (codec->query_shapes >= inputs) return raw_shaped(codec, error);
    if (codec->request.format == KS_BODY_FORMAT_RAW)
        return ks_fail(error, KS_NAME, "expected %d inputs but the query has %d shapes for model '%s'", inputs,
                       codec->query_shapes, model->name);
    const int input = __builtin_ctz(wanted);
    if (model->in_rank[input] > 1)
        return ks_fail(
            error, KS_SHAPE,
            "The shape of the raw input '%s' can not be deduced because there are more than one variable-sized "
            "dimension",
            model->op->inputs[input].name);
    if (codec->query_inputs > 1 || (codec->query_inputs == 1 && codec->query_input[0] != input))
        return ks_fail(error, KS_NAME, "the query has no shape for input '%s' of model '%s'",
                       model->op->inputs[codec->query_input[codec->query_inputs - 1]].name, model->name);
    codec->query_shapes = 1;
    codec->query_input[0] = input;
    status = ks_codec_hold_query(codec, error);
    if (status == KS_OK) status = name_datatypes(codec, error);
    if (status != KS_OK) return status;
    codec->deduce = true;
    if (codec->content_length < 0) return KS_OK;
    return ks_codec_raw_deduce(codec, (size_t)codec->content_length, error);
}

ks_status ks_codec_raw_deduce(ks_codec *codec, size_t body_bytes, ks_error *error)
{
    ks_tensor *tensor = &codec->request.spec.in[codec->query_input[0]];
    codec->deduce = false;
    tensor->rank = 1;
    tensor->dims[0] = (int64_t)(body_bytes / ks_dtype_size(tensor->dtype));
    codec->content_length = (int64_t)body_bytes;
    return raw_resolve(codec, error);
}

/* The length is unknown until the end: the body lies at the start of the side, which doubles as it fills. */
ks_status ks_codec_raw_grow(ks_codec *codec, const char *bytes, size_t n, ks_error *error)
{
    const size_t needed = codec->in_used + n;
    if (needed > codec->in_asked) {
        size_t wanted = codec->in_asked ? codec->in_asked : 4096;
        while (wanted < needed) wanted *= 2;
        const size_t in_bytes = wanted < codec->limits.max_body ? wanted : (size_t)codec->limits.max_body;
        const ks_status status = ks_codec_take_memory(codec, in_bytes, in_bytes, codec->in_used, error);
        if (status != KS_OK) return status;
    }
    memcpy(codec->sides.in + codec->in_used, bytes, n);
    codec->in_used += n;
    return ks_infer_request_check_bytes(&codec->request, codec->query_input[0], bytes, n, error);
}
