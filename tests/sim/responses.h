/* Responses, as a client reads them. */
#ifndef KS_SIM_RESPONSES_H
#define KS_SIM_RESPONSES_H
#include "sim/requests.h"

typedef struct sim_response {
    int status;
    bool closes;
    const char *body;
    size_t length, size; /* of the body; of all */
} sim_response;

/* false: it is not all there. What is no response ends the process. */
bool sim_response_read(const char *bytes, size_t n, sim_response *out);
/* A 200's body is the one that the request must get. */
void sim_response_check_body(const sim_response *response, const sim_request *request);
#endif
