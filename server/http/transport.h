/* The border between the sequence of a request (request.c) and what moves the bytes of its connection. There are two: the
 * plain reader (plain.c), which reads every head and serves all of HTTP/1.1, and libmicrohttpd (mhd.c), which is given a
 * connection for one request whose head has been checked, and every connection with TLS.
 *
 * A transport calls, in this order: ks_request_head, ks_request_body for each chunk of the body, ks_request_end, ks_request_respond
 * until it has sent, ks_request_sent. The sequence calls the transport below. The loop's thread. */
#ifndef KS_TRANSPORT_H
#define KS_TRANSPORT_H
#include "observe/metrics.h"
#include "http/response.h"

struct ks_http;
struct ks_conn;

typedef struct ks_transport {
    ks_count reader; /* counts the requests that it reads */
    /* Sends head and body, now or later, and calls ks_request_sent, once. Owns what the response owns from then on. */
    void (*send)(struct ks_http *, struct ks_conn *, ks_response *);
    /* Ends the connection without a response. */
    void (*drop)(struct ks_http *, struct ks_conn *);
    /* Sends the request's fault although its head or body has not come to its end; drops what still comes, then ends the
     * connection. */
    void (*cut)(struct ks_http *, struct ks_conn *);
    /* The work is done, or there is room, or there are bytes of the response, or the request was aborted. */
    void (*resume)(struct ks_http *, struct ks_conn *);
    /* Of epoll. */
    void (*event)(struct ks_http *, struct ks_conn *, uint32_t events);
} ks_transport;

extern const ks_transport ks_plain_transport, ks_library_transport;
#endif
