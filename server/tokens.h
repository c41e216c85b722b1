/* Bearer tokens from a file of mode 0600, one a line. Start-up and SIGHUP. */
#ifndef KS_TOKENS_H
#define KS_TOKENS_H
#include "kernserve/status.h"

/* 0 or the exit code. A table that ends with NULL, one allocation. Retired tables are never freed: a request may still
 * compare with them. */
int ks_tokens_read(const char *file, const char *const **out, ks_error *error);
#endif
