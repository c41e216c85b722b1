#include "base/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config/config.h"

enum { FILE_MAX = 65536, TOKENS_MAX = 256, TENANT_MAX = 128, SECRET_MIN = 16 };

static const struct {
    const char *name;
    unsigned right;
} rights[] = {{"infer", KS_RIGHT_INFER},
              {"tensors", KS_RIGHT_TENSORS},
              {"models", KS_RIGHT_MODELS},
              {"operator", KS_RIGHT_OPERATOR}};
enum { RIGHTS = sizeof rights / sizeof rights[0] };

static _Atomic int tables;

const char *ks_right_name(unsigned right)
{
    for (int i = 0; i < RIGHTS; i++)
        if (rights[i].right == right) return rights[i].name;
    return "";
}

int ks_tokens_tables(void)
{
    return atomic_load(&tables);
}

/* --- tables and their references ----------------------------------------------------------------------------------- */

/* Room for that many tokens, and behind them for the file's bytes and a zero. */
static ks_tokens *new_table(int count, size_t text_bytes)
{
    const size_t bytes = sizeof(ks_tokens) + (size_t)count * sizeof(ks_token) + text_bytes + 1;
    ks_tokens *table = calloc(1, bytes);
    if (!table) return NULL;
    table->references = 1;
    table->bytes = bytes;
    atomic_fetch_add(&tables, 1);
    return table;
}

void ks_tokens_release(ks_tokens **tokens)
{
    ks_tokens *table = *tokens;
    *tokens = NULL;
    if (!table || atomic_fetch_sub(&table->references, 1) > 1) return;
    explicit_bzero(table, table->bytes);
    free(table);
    atomic_fetch_sub(&tables, 1);
}

void ks_tokens_publish_take(ks_token_store *store, ks_tokens *tokens)
{
    pthread_mutex_lock(&store->lock);
    ks_tokens *old = atomic_exchange(&store->current, tokens);
    pthread_mutex_unlock(&store->lock);
    ks_tokens_release(&old);
}

/* A table that a reader holds is not freed, so no other can have its address: equal pointers are the same table. */
const ks_tokens *ks_tokens_follow(ks_token_store *store, ks_tokens **mine)
{
    if (atomic_load_explicit(&store->current, memory_order_acquire) == *mine) return *mine;
    ks_tokens_release(mine);
    pthread_mutex_lock(&store->lock);
    *mine = atomic_load(&store->current);
    if (*mine) atomic_fetch_add(&(*mine)->references, 1);
    pthread_mutex_unlock(&store->lock);
    return *mine;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static int fail_open(const char *file, int fault, ks_error *error)
{
    ks_fail(error, KS_CONFIG, "token-file: %.120s: %s", file, strerror(fault));
    return fault == EACCES || fault == EPERM ? KS_EXIT_PERMISSION : KS_EXIT_NO_FILE;
}

static int check_file(const char *file, const struct stat *about, ks_error *error)
{
    if ((about->st_mode & 077) != 0) {
        ks_fail(error, KS_CONFIG, "token-file: %.120s has mode %04o, must be 0600: others may read it", file,
                (unsigned)(about->st_mode & 07777));
        return KS_EXIT_PERMISSION;
    }
    if (S_ISREG(about->st_mode) && about->st_size <= FILE_MAX) return KS_EXIT_OK;
    ks_fail(error, KS_CONFIG, "token-file: %.120s is not a file of at most %d bytes", file, FILE_MAX);
    return KS_EXIT_CONFIG;
}

static int read_bytes(const char *file, char out[FILE_MAX + 1], size_t *n, ks_error *error)
{
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_open(file, errno, error);
    struct stat about;
    int code = fstat(fd, &about) == 0 ? check_file(file, &about, error) : fail_open(file, errno, error);
    ssize_t got = 0;
    *n = 0;
    while (code == KS_EXIT_OK && *n < FILE_MAX && (got = TEMP_FAILURE_RETRY(read(fd, out + *n, FILE_MAX - *n))) > 0)
        *n += (size_t)got;
    if (code == KS_EXIT_OK && got < 0) code = fail_open(file, errno, error);
    out[*n] = 0;
    close(fd);
    return code;
}

/* --- a line ------------------------------------------------------------------------------------------------------- */

/* As models and tensors are named: letters, digits, _ . -, neither . nor - in front. */
static bool is_name(const char *text)
{
    static const char taken[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    const size_t length = strspn(text, taken);
    return length > 0 && length <= TENANT_MAX && !text[length] && *text != '.' && *text != '-';
}

/* Digits; where scaled, k, M or G may follow. */
static bool read_amount(const char *text, bool scaled, uint64_t *out)
{
    const size_t digits = strspn(text, "0123456789");
    uint64_t value = 0, factor = 1;
    if (digits == 0) return false;
    for (size_t i = 0; i < digits; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return false;
    if (scaled && text[digits] && !text[digits + 1])
        factor = text[digits] == 'k' ? 1 << 10 : text[digits] == 'M' ? 1 << 20 : text[digits] == 'G' ? 1 << 30 : 0;
    else if (text[digits])
        return false;
    return factor > 0 && value > 0 && !__builtin_mul_overflow(value, factor, out);
}

/* a,b,c: each a known right. */
static bool read_rights(const char *text, unsigned *out)
{
    *out = 0;
    for (;;) {
        const size_t length = strcspn(text, ",");
        int i = 0;
        while (i < RIGHTS && (strlen(rights[i].name) != length || memcmp(rights[i].name, text, length) != 0)) i++;
        if (i == RIGHTS) return false;
        *out |= rights[i].right;
        if (!text[length]) return true;
        text += length + 1;
    }
}

/* One NAME=VALUE of a line. given: a bit for each name that came before. */
static bool read_field(char *text, ks_token *token, unsigned *given)
{
    static const char *const names[] = {"tenant", "bytes", "tensors", "models", "rights"};
    enum { TENANT, BYTES, TENSORS, MODELS, RIGHTS_FIELD, FIELDS };
    char *value = strchr(text, '=');
    if (!value) return false;
    *value++ = 0;
    int i = 0;
    while (i < FIELDS && strcmp(names[i], text) != 0) i++;
    if (i == FIELDS || (*given >> i & 1)) return false;
    *given |= 1u << i;
    switch (i) {
    case TENANT:
        token->tenant = value;
        return is_name(value);
    case BYTES:
        return read_amount(value, true, &token->bytes);
    case TENSORS:
        return read_amount(value, false, &token->tensors);
    case MODELS:
        return read_amount(value, false, &token->models);
    default:
        return read_rights(value, &token->rights);
    }
}

/* NAME:SECRET, cut in place, or a secret alone. What is wrong with it; NULL: nothing. */
static const char *read_secret(char *text, ks_token *token)
{
    char *const colon = strchr(text, ':');
    token->name = colon ? text : "default";
    token->text = colon ? colon + 1 : text;
    token->length = strlen(token->text);
    if (colon == NULL) return NULL;
    *colon = 0;
    if (!is_name(text) || colon - text > KS_TOKEN_NAME_MAX)
        return "in front of a colon stands no name of at most 32 bytes";
    return token->length < SECRET_MIN ? "behind a name stands a secret of less than 16 characters" : NULL;
}

/* A line without its end, cut in place. What is wrong with it is said without a byte of it: it may be a secret. */
static const char *read_line(char *line, ks_token *token)
{
    for (const char *c = line; *c; c++)
        if (*c < ' ' || *c > '~') return "a token is one line of visible ASCII";
    char *rest = NULL;
    unsigned given = 0;
    *token = (ks_token){.rights = KS_RIGHTS_ALL, .tenant = ""};
    char *const first = strtok_r(line, " ", &rest);
    if (!first) return "a line holds spaces alone";
    const char *const wrong = read_secret(first, token);
    if (wrong) return wrong;
    for (char *field; (field = strtok_r(NULL, " ", &rest)) != NULL;) {
        if (given == 0) token->rights = KS_RIGHTS_ALL & ~(unsigned)KS_RIGHT_OPERATOR;
        if (!read_field(field, token, &given))
            return "behind a token may stand, once each: tenant=NAME bytes=SIZE tensors=N models=N and "
                   "rights= with infer, tensors, models, operator";
    }
    return NULL;
}

static int count_lines(const char *text)
{
    int lines = 1;
    for (; *text; text++) lines += *text == '\n' || *text == '\r';
    return lines;
}

/* The lines of the table's own copy of the file. */
static const char *read_lines(ks_tokens *table, char *text, size_t n, int *number)
{
    int next = 1;
    *number = next;
    if (memchr(text, 0, n)) return "not a text file";
    for (char *end = text + n; text < end;) {
        const size_t length = strcspn(text, "\r\n"); /* a zero byte lies behind the last one read */
        char *line = text;
        *number = next;
        next += text[length] != '\r' || text[length + 1] != '\n'; /* the two together end one line */
        text += length + 1;
        line[length] = 0;
        if (length == 0 || *line == '#') continue;
        if (table->count == TOKENS_MAX) return "too many tokens, 256 are taken";
        const char *wrong = read_line(line, &table->item[table->count]);
        if (wrong) return wrong;
        table->count++;
    }
    return table->count ? NULL : "there is no token in it";
}

int ks_tokens_read(const char *file, ks_tokens **out, ks_error *error)
{
    char bytes[FILE_MAX + 1];
    size_t n = 0;
    *out = NULL;
    const int code = read_bytes(file, bytes, &n, error);
    if (code != KS_EXIT_OK) return code;
    const int lines = count_lines(bytes);
    const int room = lines < TOKENS_MAX ? lines : TOKENS_MAX;
    ks_tokens *table = new_table(room, n);
    if (!table) {
        explicit_bzero(bytes, sizeof bytes);
        ks_fail(error, KS_MEMORY, "token-file: out of memory");
        return KS_EXIT_SYSTEM;
    }
    char *text = (char *)&table->item[room];
    memcpy(text, bytes, n + 1);
    explicit_bzero(bytes, sizeof bytes);
    int number;
    const char *wrong = read_lines(table, text, n, &number);
    if (!wrong) {
        *out = table;
        return KS_EXIT_OK;
    }
    ks_tokens_release(&table);
    ks_fail(error, KS_CONFIG, "token-file: %.120s:%d: %s", file, number, wrong);
    return KS_EXIT_CONFIG;
}
