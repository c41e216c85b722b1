/* A bounded, growing text: for answers and pages, never for logs. Once an append fails (limit or memory) the text is
 * marked broken and later appends do nothing, so that callers check once, at the end. One thread at a time. */
#ifndef KS_TEXT_H
#define KS_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct ks_text {
    char *bytes; /* malloc'ed, owned; not terminated */
    size_t length, cap, limit;
    bool broken;
} ks_text;

void ks_text_init(ks_text *text, size_t limit); /* no allocation yet */
void ks_text_fini(ks_text *text);
/* Room for n more bytes: a pointer to them, or NULL when broken. Advance length by what was written. */
char *ks_text_room(ks_text *text, size_t n);
void ks_text_add(ks_text *text, const char *bytes, size_t n);
/* Here, so that the compiler counts the bytes of a literal. */
static inline void ks_text_puts(ks_text *text, const char *string)
{
    ks_text_add(text, string, strlen(string));
}
__attribute__((format(printf, 2, 3))) void ks_text_printf(ks_text *text, const char *format, ...);
/* A JSON string with its quotes; control bytes, quote and backslash escaped; the bytes are taken as UTF-8. */
void ks_text_json(ks_text *text, const char *bytes, size_t n);
/* Bytes of the UTF-8 sequence that begins at s, `left` of which are there; 0: none does. */
size_t ks_utf8_length(const char *s, size_t left);
/* Client text made fit for a sentence: printable ASCII, cut. */
enum { KS_QUOTE_MAX = 64 };
typedef struct ks_quote {
    char text[KS_QUOTE_MAX + 1];
} ks_quote;
ks_quote ks_quoted(const char *bytes, size_t n);
/* Edits (insert, delete, replace, swap of neighbours) that make one name the other; KS_NAME_FAR: too long to be compared. */
enum { KS_NAME_FAR = 64 };
int ks_name_distance(const char *a, size_t a_length, const char *b);
/* At most a third of the name's letters are wrong, so that a sentence may suggest the other one. */
bool ks_name_is_near(size_t length, int distance);
/* Of memory whose bytes are used from its start on, and are not needed behind that: gives the pages before `used` back to
 * the system, a MiB or more at a time. *given: what has gone already. 64 MiB at once, when it is freed, take 3 ms. */
void ks_text_give_back(const char *memory, size_t used, size_t *given);
/* Hands the buffer over (free() it); the text is empty afterwards. NULL when broken. */
char *ks_text_take(ks_text *text, size_t *length);
#endif
