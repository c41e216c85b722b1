/* In place of server/http_reader.c: which reader the next turns prefer. A variable here, because a fuzz target has both in one
 * process; each turn reads it anew. */
#include <stdbool.h>

extern bool ks_http_prefers_library;
bool ks_http_prefers_library;
void http_switch_to_library(bool on);

void http_switch_to_library(bool on)
{
    ks_http_prefers_library = on;
}
