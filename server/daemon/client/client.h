/* A running daemon, asked over HTTP by a command: --healthcheck, --plans. Blocks for 2 s at most at each step. */
#ifndef KS_CLIENT_H
#define KS_CLIENT_H
#include "base/config/config.h"

typedef struct ks_client_url {
    char host[256], port[8], path[512];
} ks_client_url;

/* [http://]HOST[:PORT][/PATH]; says what is wrong, as the others do. path: where the URL has none. */
bool ks_client_cut(const char *url, const char *path, ks_client_url *out);
int ks_client_connect(const ks_client_url *url); /* -1 */

/* A request with Connection: close. accept, token: NULL: without that field. */
typedef struct ks_client_request {
    const char *host, *path, *accept, *token;
} ks_client_request;

/* Closes fd. Returns the response's status, 0: none came. text: at most cap - 1 bytes from the response's first on, terminated. */
int ks_client_ask(int fd, const ks_client_request *request, char *text, size_t cap);
#endif
