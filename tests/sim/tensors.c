/* Requests about a tensor that stays: PUT, GET, DELETE, and work on it.
 *
 * Interface  requests.h. */
#include <string.h>

#include "sim/requests.h"
#include "sim/sim.h"

enum { VALUES_MAX = 6000 };

static float *copy_of(const float *values, size_t count)
{
    float *copy = sim_take(count * sizeof *copy);
    memcpy(copy, values, count * sizeof *copy);
    return copy;
}

static void put(sim_bytes *out, sim_request *request, sim_tensor *tensor)
{
    const bool was_there = tensor->values != NULL;
    sim_give(tensor->values);
    tensor->depth = (int)sim_skewed(1, 60);
    tensor->rows = (int)sim_skewed(1, VALUES_MAX / tensor->depth);
    const size_t count = (size_t)(tensor->rows * tensor->depth);
    tensor->values = sim_whole_numbers(count);
    sim_print(out, "PUT /v2/tensors/t%d?datatype=FP32&shape=%d,%d", tensor->client, tensor->rows, tensor->depth);
    sim_print(out, " HTTP/1.1\r\nHost: localhost\r\n");
    sim_put_body(out, request, tensor->values, count * sizeof(float));
    request->status = was_there ? 200 : 201;
}

static void end(sim_bytes *out, sim_request *request)
{
    sim_print(out, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    request->head_end = out->n;
}

static void get(sim_bytes *out, sim_request *request, const sim_tensor *tensor)
{
    sim_print(out, "GET /v2/tensors/t%d", tensor->client);
    end(out, request);
    request->status = tensor->values ? 200 : 404;
    if (!tensor->values) return;
    request->body = SIM_BODY_BYTES;
    request->count = (size_t)(tensor->rows * tensor->depth);
    request->values = copy_of(tensor->values, request->count);
}

static void forget(sim_bytes *out, sim_request *request, sim_tensor *tensor)
{
    sim_print(out, "DELETE /v2/tensors/t%d", tensor->client);
    end(out, request);
    request->status = tensor->values ? 204 : 404;
    sim_give(tensor->values);
    tensor->values = NULL;
}

static void use(sim_bytes *out, sim_request *request, const sim_tensor *tensor)
{
    sim_print(out, "POST /v2/models/reduce_sum/infer?INPUT0=@t%d&axis=1 HTTP/1.1\r\nHost: localhost\r\n",
              tensor->client);
    sim_print(out, "Content-Length: 0\r\n\r\n");
    request->head_end = out->n;
    request->status = tensor->values ? 200 : 404;
    request->inference = true;
    if (!tensor->values) return;
    request->body = SIM_BODY_BYTES;
    request->count = (size_t)tensor->rows;
    request->values = sim_take(request->count * sizeof(float));
    for (int r = 0; r < tensor->rows; r++)
        for (int k = 0; k < tensor->depth; k++) request->values[r] += tensor->values[r * tensor->depth + k];
}

void sim_tensor_draw(sim_bytes *out, sim_request *request, int index, sim_tensor *tensor)
{
    const int what = (int)sim_draw(tensor->values ? 8 : 3);
    request->needs = tensor->last;
    request->stores = what < 2 || what == 7;
    if (what < 2)
        put(out, request, tensor);
    else if (what == 7)
        forget(out, request, tensor);
    else if (what % 2)
        get(out, request, tensor);
    else
        use(out, request, tensor);
    if (request->stores) tensor->last = index;
}
