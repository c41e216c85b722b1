/* The token file: what each line means, what is refused and with which exit code; and that tables end with their readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/config/config.h"
#include "base/tokens.h"

static char file_name[] = "/tmp/ks_tokens_XXXXXX";

static int make_file(void **state)
{
    (void)state;
    const int fd = mkstemp(file_name);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(file_name);
}

static int read_text(const char *text, size_t n, ks_tokens **out, ks_error *error)
{
    FILE *file = fopen(file_name, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
    return ks_tokens_read(file_name, out, error);
}

static void lines_mean_what_they_say(void **state)
{
    enum { TENANT = KS_RIGHTS_ALL & ~KS_RIGHT_OPERATOR };
    static const struct {
        const char *line, *token;
        unsigned rights;
        const char *tenant;
        uint64_t bytes, tensors, models;
    } rows[] = {
        {"secret", "secret", KS_RIGHTS_ALL, "", 0, 0, 0},
        {"secret ", "secret", KS_RIGHTS_ALL, "", 0, 0, 0},
        {"a=b", "a=b", KS_RIGHTS_ALL, "", 0, 0, 0},
        {"s rights=infer", "s", KS_RIGHT_INFER, "", 0, 0, 0},
        {"s rights=operator", "s", KS_RIGHT_OPERATOR, "", 0, 0, 0},
        {"s  rights=infer,operator", "s", KS_RIGHT_INFER | KS_RIGHT_OPERATOR, "", 0, 0, 0},
        {"s tenant=alice", "s", TENANT, "alice", 0, 0, 0},
        {"s tenant=alice bytes=8G tensors=1000 models=16 rights=infer,tensors,models", "s", TENANT, "alice", 8ull << 30,
         1000, 16},
        {"s bytes=17", "s", TENANT, "", 17, 0, 0},
        {"s bytes=17k tenant=A_.-9", "s", TENANT, "A_.-9", 17 << 10, 0, 0},
        {"alice:0123456789abcdef rights=infer", "0123456789abcdef", KS_RIGHT_INFER, "", 0, 0, 0},
        {"a.b:0123456789:bcdef", "0123456789:bcdef", KS_RIGHTS_ALL, "", 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ks_error error = {0};
        ks_tokens *tokens = NULL;
        if (read_text(rows[i].line, strlen(rows[i].line), &tokens, &error) != KS_EXIT_OK)
            fail_msg("%s: %s", rows[i].line, error.text);
        assert_int_equal(tokens->count, 1);
        const ks_token *token = &tokens->item[0];
        assert_string_equal(token->text, rows[i].token);
        assert_int_equal(token->length, strlen(rows[i].token));
        assert_string_equal(token->tenant, rows[i].tenant);
        const char *colon = strchr(rows[i].line, ':');
        assert_int_equal(strncmp(token->name, colon ? rows[i].line : "default", strlen(token->name)), 0);
        assert_int_equal(strlen(token->name), colon ? colon - rows[i].line : (long)strlen("default"));
        if (token->rights != rows[i].rights || token->bytes != rows[i].bytes || token->tensors != rows[i].tensors ||
            token->models != rows[i].models)
            fail_msg("%s", rows[i].line);
        ks_tokens_release(&tokens);
        assert_null(tokens);
    }
}

static void many_lines(void **state)
{
    static const char text[] = "# who may ask\r\n\r\none\r\ntwo rights=infer\n\n\nthree\n# end";
    ks_tokens *tokens;
    ks_error error;
    (void)state;
    assert_int_equal(read_text(text, sizeof text - 1, &tokens, &error), KS_EXIT_OK);
    assert_int_equal(tokens->count, 3);
    assert_string_equal(tokens->item[1].text, "two");
    assert_string_equal(tokens->item[2].text, "three");
    ks_tokens_release(&tokens);
}

static void wrong_lines_are_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no token"},
        {"# none\n", "no token"},
        {"good\n \n", ":2: a line holds spaces"},
        {"good\r\nbad\x01\r\n", ":2: a token is one line of visible ASCII"},
        {"tab\tbed", "visible ASCII"},
        {"caf\xc3\xa9", "visible ASCII"},
        {"alice:0123456789abcde", "less than 16 characters"},
        {"alice:", "less than 16 characters"},
        {":0123456789abcdef", "no name"},
        {"a/b:0123456789abcdef", "no name"},
        {"a23456789012345678901234567890123:0123456789abcdef", "no name"},
        {"s operator", "behind a token"},
        {"s colour=red", "behind a token"},
        {"s rights=", "behind a token"},
        {"s rights=infer,", "behind a token"},
        {"s rights=admin", "behind a token"},
        {"s rights=infer rights=operator", "behind a token"},
        {"s tenant=", "behind a token"},
        {"s tenant=.hidden", "behind a token"},
        {"s tenant=a/b", "behind a token"},
        {"s bytes=0", "behind a token"},
        {"s bytes=8T", "behind a token"},
        {"s bytes=8Gi", "behind a token"},
        {"s tensors=8k", "behind a token"},
        {"s models=99999999999999999999", "behind a token"},
        {"s bytes=18446744073709551615G", "behind a token"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ks_error error = {0};
        ks_tokens *tokens;
        assert_int_equal(read_text(rows[i].text, strlen(rows[i].text), &tokens, &error), KS_EXIT_CONFIG);
        assert_null(tokens);
        if (!strstr(error.text, rows[i].says)) fail_msg("%s: %s", rows[i].text, error.text);
    }
    ks_error error;
    ks_tokens *tokens;
    assert_int_equal(read_text("a\0b", 3, &tokens, &error), KS_EXIT_CONFIG); /* not cut there silently */
    char many[257 * 2 + 1] = "";
    for (int i = 0; i < 256; i++) memcpy(many + 2 * i, "a\n", 3);
    assert_int_equal(read_text(many, strlen(many), &tokens, &error), KS_EXIT_OK);
    ks_tokens_release(&tokens);
    memcpy(many + 512, "a\n", 3);
    assert_int_equal(read_text(many, strlen(many), &tokens, &error), KS_EXIT_CONFIG);
    assert_int_equal(ks_tokens_tables(), 0);
}

static void files_that_others_may_read_are_refused(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0660, 0620, 0610, 0601, 0602};
    ks_error error;
    ks_tokens *tokens;
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(read_text("secret", 6, &tokens, &error), KS_EXIT_OK);
        ks_tokens_release(&tokens);
        assert_int_equal(chmod(file_name, modes[i]), 0);
        assert_int_equal(ks_tokens_read(file_name, &tokens, &error), KS_EXIT_PERMISSION);
        assert_non_null(strstr(error.text, "must be 0600"));
        assert_int_equal(chmod(file_name, 0600), 0);
    }
    assert_int_equal(ks_tokens_read("/nowhere/at/all", &tokens, &error), KS_EXIT_NO_FILE);
    assert_int_equal(ks_tokens_read("/tmp", &tokens, &error) != KS_EXIT_OK, 1);
}

/* Each reader keeps one table at most, whatever is published, and the last one to leave ends it. */
static void tables_end_with_their_readers(void **state)
{
    enum { READERS = 3 };
    ks_token_store store = {.lock = PTHREAD_MUTEX_INITIALIZER};
    ks_tokens *mine[READERS] = {NULL};
    ks_error error;
    (void)state;
    assert_null(ks_tokens_follow(&store, &mine[0]));
    for (int round = 0; round < 200; round++) {
        ks_tokens *fresh;
        char text[16];
        snprintf(text, sizeof text, "t%d", round);
        assert_int_equal(read_text(text, strlen(text), &fresh, &error), KS_EXIT_OK);
        ks_tokens_publish_take(&store, fresh);
        for (int i = 0; i < READERS; i++) { /* one asks each time, one every third, one once */
            const bool asks = i == 0 || (i == 1 && round % 3 == 0) || round == 0;
            if (asks) assert_string_equal(ks_tokens_follow(&store, &mine[i])->item[0].text, text);
        }
        assert_string_equal(mine[2]->item[0].text, "t0"); /* what was followed stays valid */
        assert_in_range(ks_tokens_tables(), 1, 1 + READERS);
    }
    ks_tokens_publish_take(&store, NULL);
    for (int i = 0; i < READERS; i++) ks_tokens_release(&mine[i]);
    assert_int_equal(ks_tokens_tables(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_mean_what_they_say),      cmocka_unit_test(many_lines),
        cmocka_unit_test(wrong_lines_are_refused),       cmocka_unit_test(files_that_others_may_read_are_refused),
        cmocka_unit_test(tables_end_with_their_readers),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
