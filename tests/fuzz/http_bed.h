/* HTTP in process: engines on the CPU and the HTTP side above them, as a shard has it, spoken to over a socket pair. One bed has
 * the plain reader, the other one libmicrohttpd, which answers the first request of a connection and ends it. For fuzz targets; one thread. */
#ifndef KS_HTTP_BED_H
#define KS_HTTP_BED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct http_bed http_bed;

/* plain: with the plain reader. Ends the process where it cannot. */
http_bed *http_bed_open(bool plain);

/* A connection: bytes go in, in pieces of at most `step` with turns between them, then the end of what is sent; out gets what
 * came back, at most `most` bytes of it. Returns how much came. Afterwards no request is in flight. */
size_t http_bed_exchange(http_bed *bed, const uint8_t *bytes, size_t size, size_t step, char *out, size_t most);
#endif
