/* A bare echo of POST bodies, without a device: what HTTP alone can reach on this machine (bare_loop.h).
 *
 * Usage    bare_echo PORT BODY_BYTES [THREADS [ANSWER_BYTES]]   the answer: the body's first bytes, by default all */
#include "bare_loop.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const size_t body = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    const int threads = argc > 3 ? atoi(argv[3]) : 1;
    const size_t answer = argc > 4 ? strtoul(argv[4], NULL, 10) : body;
    if (!body || threads < 1 || answer > body) {
        fprintf(stderr, "usage: bare_echo PORT BODY_BYTES [THREADS [ANSWER_BYTES]]\n");
        return 64;
    }
    return bare_serve((unsigned short)atoi(argv[1]), (unsigned)threads, body, answer, NULL);
}
