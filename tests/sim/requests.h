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
    int needs;      /* an earlier request of the client's without whose success anything may come; -1: none */
    bool stores;    /* changes what its tensor is */
    sim_body body;
    float *values;
    size_t count;
} sim_request;

/* The one tensor of a client that stays, as its requests drawn so far will have left it. */
typedef struct sim_tensor {
    int client, last; /* the last request that changes it; -1: none yet */
    float *values;    /* NULL: there is none */
    int rows, depth;
} sim_tensor;

typedef struct sim_bytes {
    char *bytes;
    size_t n, room;
} sim_bytes;

void sim_put(sim_bytes *out, const void *bytes, size_t n);
void sim_print(sim_bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Draws the client's next one, its number `index`, and appends it. */
void sim_request_draw(sim_bytes *out, sim_request *request, int index, sim_tensor *tensor);
void sim_request_fini(sim_request *request);
/* The same, of one that is about the tensor. */
void sim_tensor_draw(sim_bytes *out, sim_request *request, int index, sim_tensor *tensor);

/* For both: small whole numbers; the last fields of a head, and the body, with a length or in chunks. */
float *sim_whole_numbers(size_t count);
void sim_put_body(sim_bytes *out, sim_request *request, const void *bytes, size_t n);
#endif
