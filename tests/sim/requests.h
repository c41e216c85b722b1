/* Requests, and what each must get. */
#ifndef KS_SIM_REQUESTS_H
#define KS_SIM_REQUESTS_H
#include <stdbool.h>
#include <stddef.h>

typedef enum sim_body {
    SIM_BODY_ANY,    /* of a document */
    SIM_BODY_BYTES,  /* these, and nothing else */
    SIM_BODY_TAIL,   /* a JSON head in front of them */
    SIM_BODY_NUMBERS /* as numbers of JSON, behind "data":[ */
} sim_body;

/* One request: its bytes, from at to end of the text that it was appended to. */
typedef struct sim_request {
    size_t at, head_end, end;
    int status;     /* that it gets if nothing else is wrong */
    bool closes;    /* and the connection ends with it */
    bool inference; /* a 200 is the device's work */
    bool ready;     /* asks whether the daemon is ready */
    bool waits;     /* sends its body once it is asked to */
    sim_body body;
    float *values;
    size_t count;
} sim_request;

typedef struct sim_bytes {
    char *bytes;
    size_t n, room;
} sim_bytes;

void sim_put(sim_bytes *out, const void *bytes, size_t n);
void sim_print(sim_bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Draws one and appends it. */
void sim_request_draw(sim_bytes *out, sim_request *request);
void sim_request_fini(sim_request *request);
#endif
