/* Follows the JSON of a load far enough to know texts of files: their base64 is decoded here, and all else goes to the scanner, which
 * checks it.
 *
 * Interface load_body.h
 * Threads   one at a time. */
#include "api/models/load_body.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "codec/json_tree.h"
#include "models/files.h"

enum {
    TEXT_MAX = 2 << 20,
    HEAD_MAX = 8 << 20,
    MEMBERS_MAX = KS_MODEL_FILES_MAX + 16,
    KEY_MAX = KS_MODEL_FILE_NAME_MAX + 16,
    FIRST_BYTES = 64 << 10
};

static const char file_prefix[] = "file:";

typedef enum reading { OUTSIDE, IN_TEXT, IN_ESCAPE, IN_FILE, IN_FILE_ESCAPE } reading;

typedef struct load_file {
    char key[KEY_MAX + 1]; /* behind file: */
    unsigned char *bytes;
    size_t length, cap;
    uint32_t bits; /* of the base64 that makes no byte yet */
    int letters, pads;
} load_file;

struct ks_load_body {
    ks_budget *budget;
    uint64_t taken, left; /* of the budget; of --max-json */
    ks_scan *scan;
    ks_json *top, *config;
    bool begun;
    /* where it is: */
    reading state;
    int depth;
    uint32_t objects;                   /* bit i: what is open at depth i is one */
    bool key, in_parameters, file_next; /* a text would be a key; a member of parameters; a file's text */
    char name[KEY_MAX + 1];             /* of the last key, cut; odd: not to be compared */
    size_t name_length;
    bool odd;
    int files;
    load_file file[KS_MODEL_FILES_MAX];
    ks_load_file given[KS_MODEL_FILES_MAX];
};

/* --- base64 --------------------------------------------------------------------------------------------------------------- */

static ks_status make_room(ks_load_body *body, load_file *file, ks_error *error)
{
    const size_t cap = file->cap ? 2 * file->cap : FIRST_BYTES;
    if (file->length < file->cap) return KS_OK;
    if (!ks_budget_take(body->budget, cap - file->cap))
        return ks_fail(error, KS_BUDGET, "no memory for file '%s': --inflight-bytes are in use", file->key);
    body->taken += cap - file->cap;
    unsigned char *grown = realloc(file->bytes, cap);
    if (!grown) return ks_fail(error, KS_MEMORY, "no memory for file '%s'", file->key);
    file->bytes = grown;
    file->cap = cap;
    return KS_OK;
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static ks_status put_letter(ks_load_body *body, char c, ks_error *error)
{
    load_file *file = &body->file[body->files - 1];
    const int value = c == '=' ? 0 : value_of(c);
    file->pads += c == '=';
    file->letters++;
    if (value < 0 || file->pads > 2 || (file->pads > 0 && c != '='))
        return ks_fail(error, KS_FIELD, "file '%s' is not base64", file->key);
    file->bits = (file->bits << 6 | (uint32_t)value) & 0xffffff;
    if (file->letters % 4) return KS_OK;
    for (int i = 0; i < 3 - file->pads; i++) {
        const ks_status status = make_room(body, file, error);
        if (status != KS_OK) return status;
        file->bytes[file->length++] = (unsigned char)(file->bits >> (16 - 8 * i));
    }
    return KS_OK;
}

static ks_status end_file(ks_load_body *body, ks_error *error)
{
    const load_file *file = &body->file[body->files - 1];
    body->state = OUTSIDE;
    if (file->letters % 4 == 0) return KS_OK;
    return ks_fail(error, KS_FIELD, "file '%s' is not base64: it ends amid four letters", file->key);
}

/* A byte of a file's text. */
static ks_status take_file_byte(ks_load_body *body, char c, ks_error *error)
{
    if (body->state == IN_FILE_ESCAPE) {
        body->state = IN_FILE;
        return put_letter(body, c == '/' ? c : '\\', error);
    }
    if (c == '"') return end_file(body, error);
    if (c != '\\') return put_letter(body, c, error);
    body->state = IN_FILE_ESCAPE;
    return KS_OK;
}

static ks_status begin_file(ks_load_body *body, ks_error *error)
{
    if (body->files == KS_MODEL_FILES_MAX)
        return ks_fail(error, KS_COUNT, "a model has more than %d files", (int)KS_MODEL_FILES_MAX);
    load_file *file = &body->file[body->files++];
    memcpy(file->key, body->name + sizeof file_prefix - 1, body->name_length + 1 - (sizeof file_prefix - 1));
    body->state = IN_FILE;
    return KS_OK;
}

/* --- the JSON around it ------------------------------------------------------------------------------------------------------ */

static void end_key(ks_load_body *body)
{
    const char *const name = body->name;
    if (body->depth == 1) body->in_parameters = !body->odd && strcmp(name, "parameters") == 0;
    body->file_next = body->depth == 2 && body->in_parameters && !body->odd &&
                      strncmp(name, file_prefix, sizeof file_prefix - 1) == 0;
    body->key = false;
}

static void take_key_byte(ks_load_body *body, char c)
{
    if (body->name_length == KEY_MAX)
        body->odd = true;
    else
        body->name[body->name_length++] = c;
    body->name[body->name_length] = '\0';
}

/* A byte of any other text. */
static void take_text_byte(ks_load_body *body, char c)
{
    if (body->state == IN_ESCAPE) {
        body->state = IN_TEXT;
        body->odd |= c != '/'; /* others are a character by another name */
        if (body->key) take_key_byte(body, c);
    } else if (c == '\\') {
        body->state = IN_ESCAPE;
    } else if (c != '"') {
        if (body->key) take_key_byte(body, c);
    } else {
        body->state = OUTSIDE;
        if (body->key) end_key(body);
    }
}

static void open_level(ks_load_body *body, bool object)
{
    body->depth++;
    body->key = object;
    if (body->depth < 32) body->objects = (body->objects & ~(1u << body->depth)) | (uint32_t)object << body->depth;
}

static void begin_text(ks_load_body *body)
{
    body->state = IN_TEXT;
    body->name_length = 0;
    body->name[0] = '\0';
    body->odd = false;
}

/* A byte between texts. What is no JSON there is the scanner's to refuse. */
static ks_status take_byte(ks_load_body *body, char c, ks_error *error)
{
    const bool file_next = body->file_next;
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ':') return KS_OK;
    body->file_next = false;
    if (c == '"' && file_next) return begin_file(body, error);
    if (c == '"')
        begin_text(body);
    else if (c == '{' || c == '[')
        open_level(body, c == '{');
    else if (c == '}' || c == ']')
        body->depth -= body->depth > 0;
    else if (c == ',')
        body->key = body->depth < 32 && (body->objects >> body->depth & 1);
    return KS_OK;
}

/* --- life --------------------------------------------------------------------------------------------------------------------- */

ks_status ks_load_body_begin(ks_budget *budget, uint64_t json_max, ks_load_body **out, ks_error *error)
{
    const ks_scan_limits limits = {
        .json_head_max = HEAD_MAX, .string_max = TEXT_MAX, .members_max = MEMBERS_MAX, .json_max = HEAD_MAX};
    ks_load_body *body = calloc(1, sizeof *body);
    if (!body) return ks_fail(error, KS_MEMORY, "no memory for a request of the repository");
    body->budget = budget;
    body->left = json_max;
    const ks_status status = ks_scan_begin(&limits, NULL, NULL, &body->scan, error);
    if (status != KS_OK)
        free(body);
    else
        *out = body;
    return status;
}

ks_status ks_load_body_feed(ks_load_body *body, const char *bytes, size_t n, ks_error *error)
{
    ks_status status = KS_OK;
    size_t from = 0; /* what the scanner has not seen */
    if (n > body->left)
        return ks_fail(error, KS_BODY_SIZE,
                       "the request's JSON exceeds the maximum allowed size: raise --max-json, or PUT a "
                       "file of the model");
    body->left -= n;
    body->begun |= n > 0;
    for (size_t i = 0; i < n && status == KS_OK; i++) {
        if (body->state >= IN_FILE) {
            status = take_file_byte(body, bytes[i], error);
            if (body->state == OUTSIDE) from = i;
        } else if (body->state == OUTSIDE) {
            status = take_byte(body, bytes[i], error);
            if (body->state < IN_FILE) continue;
            if (status == KS_OK) status = ks_scan_feed(body->scan, bytes + from, i + 1 - from, error);
            from = n;
        } else {
            take_text_byte(body, bytes[i]);
        }
    }
    if (status != KS_OK || body->state >= IN_FILE || from >= n) return status;
    return ks_scan_feed(body->scan, bytes + from, n - from, error);
}

void ks_load_body_fini(ks_load_body **pointer)
{
    ks_load_body *body = *pointer;
    *pointer = NULL;
    if (!body) return;
    for (int i = 0; i < body->files; i++) free(body->file[i].bytes);
    if (body->taken) ks_budget_give(body->budget, body->taken);
    ks_json_close(&body->top);
    ks_json_close(&body->config);
    ks_scan_fini(&body->scan);
    free(body);
}

void ks_load_body_drop(void *body)
{
    ks_load_body *dropped = body;
    ks_load_body_fini(&dropped);
}

/* --- what it says ----------------------------------------------------------------------------------------------------------- */

static ks_status read_config_json(const char *text, ks_json **out, ks_error *error)
{
    static const ks_scan_limits limits = {
        .json_head_max = HEAD_MAX, .string_max = TEXT_MAX, .members_max = 64, .json_max = TEXT_MAX};
    ks_scan *scan = NULL;
    ks_status status = ks_scan_begin(&limits, NULL, NULL, &scan, error);
    if (status == KS_OK) status = ks_scan_feed(scan, text, strlen(text), error);
    if (status == KS_OK) status = ks_scan_end(scan, error);
    if (status == KS_OK) status = ks_json_open(scan, "'config'", out, error);
    ks_scan_fini(&scan);
    return status;
}

/* What a configuration has that means nothing here. */
static void log_others(const char *name, const ks_json *config)
{
    static const char *const known[] = {"name", "max_batch_size", "parameters", "backend", "platform"};
    char others[256] = "";
    size_t length = 0;
    for (const ks_json *item = ks_json_first(config); item; item = ks_json_next(item)) {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(known[i], ks_json_key(item)) != 0) i++;
        if (i == sizeof known / sizeof known[0] && length < sizeof others / 2)
            length += (size_t)snprintf(others + length, sizeof others - length, "%s%.40s", length ? " " : "",
                                       ks_json_key(item));
    }
    if (length > 0)
        KS_LOG(KS_LOG_INFO, "members of a model's configuration are not used", KS_TEXT("model", name),
               KS_TEXT("members", others));
}

static ks_status read_model_config(ks_load_body *body, const char *name, ks_load_words *out, ks_error *error)
{
    const ks_json *config = body->config, *batch = ks_json_member(config, "max_batch_size"),
                  *own = ks_json_member(config, "name");
    const ks_json *parameter = ks_json_member(ks_json_member(config, "parameters"), "definition");
    const ks_json *text = ks_json_member(parameter, "string_value");
    if (own && (!ks_json_is_text(own) || (*ks_json_text(own) && strcmp(ks_json_text(own), name) != 0)))
        return ks_fail(error, KS_NAME, "'config' has the name '%s', and the model is '%s'",
                       ks_quoted(ks_json_text(own), strlen(ks_json_text(own))).text, name);
    if (batch && !ks_json_read_unsigned(batch, &out->max_batch))
        return ks_json_wrong_type("max_batch_size", "unsigned-integer", error);
    if (text && !ks_json_is_text(text)) return ks_json_wrong_type("string_value", "string", error);
    if (text) out->text = ks_json_text(text);
    log_others(name, config);
    return KS_OK;
}

static ks_status read_config(ks_load_body *body, const char *name, const ks_json *item, ks_load_words *out,
                             ks_error *error)
{
    if (!ks_json_is_text(item)) return ks_json_wrong_type("config", "string", error);
    out->has_config = true;
    const ks_status status = read_config_json(ks_json_text(item), &body->config, error);
    if (status != KS_OK) return status;
    if (!ks_json_is_object(body->config)) return ks_fail(error, KS_FIELD, "'config' is the text of an object");
    if (!ks_json_member(body->config, "nodes")) return read_model_config(body, name, out, error);
    out->text = ks_json_text(item);
    return KS_OK;
}

/* Its text has been decoded already; the member is left, empty. */
static ks_status read_file(ks_load_body *body, const char *key, const ks_json *item, ks_load_words *out,
                           ks_error *error)
{
    int i = 0;
    while (i < body->files && strcmp(body->file[i].key, key) != 0) i++;
    if (!ks_json_is_text(item) || i == body->files)
        return ks_fail(error, KS_FIELD, "file '%s' is no text of base64, or its name is none",
                       ks_quoted(key, strlen(key)).text);
    const char *const name = ks_model_file_name(key, error);
    if (!name) return error->status;
    const unsigned char *const bytes = body->file[i].bytes;
    body->given[out->files++] = (ks_load_file){
        .name = name, .bytes = bytes ? bytes : (const unsigned char *)"", .length = body->file[i].length};
    return KS_OK;
}

static ks_status read_parameters(ks_load_body *body, const char *name, ks_load_words *out, ks_error *error)
{
    const ks_json *parameters = NULL;
    ks_status status = ks_json_find_object(body->top, "parameters", &parameters, error);
    if (status != KS_OK || !parameters) return status;
    for (const ks_json *item = ks_json_first(parameters); item && status == KS_OK; item = ks_json_next(item)) {
        const char *const key = ks_json_key(item);
        if (strcmp(key, "config") == 0)
            status = read_config(body, name, item, out, error);
        else if (strcmp(key, "unload_dependents") == 0 && !ks_json_is_bool(item))
            status = ks_json_wrong_type(key, "boolean", error);
        else if (strncmp(key, file_prefix, sizeof file_prefix - 1) == 0)
            status = read_file(body, key + sizeof file_prefix - 1, item, out, error);
    }
    return status;
}

ks_status ks_load_body_end(ks_load_body *body, const char *name, ks_load_words *out, ks_error *error)
{
    *out = (ks_load_words){.file = body->given};
    if (!body->begun) return KS_OK;
    if (body->state != OUTSIDE) return ks_fail(error, KS_JSON, "failed to parse the request JSON: it ends amid a text");
    ks_status status = ks_scan_end(body->scan, error);
    if (status == KS_OK) status = ks_json_open(body->scan, "the request's JSON", &body->top, error);
    if (status == KS_OK && !ks_json_is_object(body->top))
        status = ks_fail(error, KS_FIELD, "the request's JSON is no object");
    if (status == KS_OK) status = read_parameters(body, name, out, error);
    if (status != KS_OK || out->has_config || out->files == 0) return status;
    return ks_fail(error, KS_FIELD, "failed to load '%s': its files come with 'config'", name);
}
