/* Good ones: sums of rows and products of whole numbers, exact in any order, whose results are known here without the daemon's arithmetic.
 *
 * Interface  requests.h. */
#include "sim/requests.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

enum { VALUES_MAX = 70000 };

void sim_put(sim_bytes *out, const void *bytes, size_t n)
{
    if (out->n + n > out->room) {
        const size_t room = 2 * (out->n + n);
        char *grown = sim_take(room);
        if (out->n) memcpy(grown, out->bytes, out->n);
        sim_give(out->bytes);
        out->bytes = grown;
        out->room = room;
    }
    if (n) memcpy(out->bytes + out->n, bytes, n);
    out->n += n;
}

void sim_print(sim_bytes *out, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sim_check(n >= 0 && n < (int)sizeof text, "a text of a request is too long", n, 0);
    sim_put(out, text, (size_t)n);
}

void sim_request_fini(sim_request *request)
{
    sim_give(request->values);
    request->values = NULL;
}

/* --- work --------------------------------------------------------------------------------------------------------- */

/* The operands of one request, one behind the other, and the result. */
typedef struct work {
    const char *model;
    float *in;
    size_t count;          /* of in */
    int rows, depth, cols; /* of a product; cols 0: sums of rows of depth values */
} work;

float *sim_whole_numbers(size_t count)
{
    float *values = sim_take(count * sizeof *values);
    uint64_t word = sim_draw(UINT64_MAX);
    for (size_t i = 0; i < count; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)((int)(word >> 60) - 7);
    }
    return values;
}

static work draw_work(size_t most)
{
    work w = {.model = "reduce_sum"};
    if (sim_one_in(3)) {
        w.model = "matmul";
        w.rows = (int)sim_skewed(1, 24);
        w.depth = (int)sim_skewed(1, 32);
        w.cols = (int)sim_skewed(1, 24);
        w.count = (size_t)(w.rows * w.depth + w.depth * w.cols);
    } else {
        const size_t values = (size_t)sim_skewed(1, (int64_t)most);
        w.depth = (int)sim_skewed(1, (int64_t)values);
        w.rows = (int)values / w.depth;
        w.count = (size_t)w.rows * (size_t)w.depth;
    }
    w.in = sim_whole_numbers(w.count);
    return w;
}

static void add_result(const work *w, sim_request *request)
{
    const int cols = w->cols ? w->cols : 1;
    request->count = (size_t)(w->rows * cols);
    request->values = sim_take(request->count * sizeof(float));
    for (int r = 0; r < w->rows; r++)
        for (int c = 0; c < cols; c++) {
            float sum = 0;
            for (int k = 0; k < w->depth; k++) {
                const float a = w->in[r * w->depth + k];
                sum += w->cols ? a * w->in[w->rows * w->depth + k * cols + c] : a;
            }
            request->values[r * cols + c] = sum;
        }
    request->inference = true;
    request->status = 200;
}

/* --- bodies ------------------------------------------------------------------------------------------------------- */

static void end_head(sim_bytes *out, sim_request *request)
{
    sim_print(out, "\r\n");
    request->head_end = out->n;
}

static void put_chunked(sim_bytes *out, const char *bytes, size_t n)
{
    while (n > 0) {
        const size_t part = (size_t)sim_skewed(1, (int64_t)n);
        sim_print(out, "%zx\r\n", part);
        sim_put(out, bytes, part);
        sim_print(out, "\r\n");
        bytes += part;
        n -= part;
    }
    sim_print(out, "0\r\n\r\n");
}

/* Now and then a head that has no room in what a connection keeps. */
static void put_field(sim_bytes *out)
{
    if (!sim_one_in(12)) return;
    sim_print(out, "X-Field: ");
    for (int64_t left = sim_skewed(1, 12000); left > 0; left--) sim_put(out, "x", 1);
    sim_print(out, "\r\n");
}

void sim_put_body(sim_bytes *out, sim_request *request, const void *bytes, size_t n)
{
    put_field(out);
    const bool chunked = sim_one_in(5);
    request->waits = sim_one_in(6);
    if (request->waits) sim_print(out, "Expect: 100-continue\r\n");
    if (chunked)
        sim_print(out, "Transfer-Encoding: chunked\r\n");
    else
        sim_print(out, "Content-Length: %zu\r\n", n);
    end_head(out, request);
    if (chunked)
        put_chunked(out, bytes, n);
    else
        sim_put(out, bytes, n);
}

static void put_raw(sim_bytes *out, sim_request *request, const work *w)
{
    sim_print(out, "POST /v2/models/%s/infer?datatype=FP32&shape=%d,%d", w->model, w->rows, w->depth);
    if (w->cols)
        sim_print(out, "&shape=%d,%d", w->depth, w->cols);
    else
        sim_print(out, "&axis=1");
    if (sim_one_in(6)) sim_print(out, "&priority=%d", (int)sim_draw(3));
    if (!sim.calm && sim_one_in(6)) sim_print(out, "&timeout=%d", (int)sim_skewed(1, 20000));
    sim_print(out, " HTTP/1.1\r\nHost: localhost\r\n");
    sim_put_body(out, request, w->in, w->count * sizeof(float));
    request->body = SIM_BODY_BYTES;
}

/* An input's JSON, without its last brace. */
static void print_input(sim_bytes *out, int input, int rows, int cols)
{
    sim_print(out, "%s{\"name\":\"INPUT%d\",\"datatype\":\"FP32\",\"shape\":[%d,%d]", input ? "," : "", input, rows,
              cols);
}

static void print_json(sim_bytes *out, const work *w, bool binary)
{
    const float *in = w->in;
    sim_print(out, "{%s\"inputs\":[", w->cols ? "" : "\"parameters\":{\"axis\":1},");
    for (int input = 0; input < (w->cols ? 2 : 1); input++) {
        const int rows = input ? w->depth : w->rows, cols = input ? w->cols : w->depth;
        print_input(out, input, rows, cols);
        if (binary) {
            sim_print(out, ",\"parameters\":{\"binary_data_size\":%zu}}", (size_t)(rows * cols) * sizeof(float));
            continue;
        }
        sim_print(out, ",\"data\":[");
        for (int i = 0; i < rows * cols; i++) sim_print(out, "%s%d", i ? "," : "", (int)*in++);
        sim_print(out, "]}");
    }
    sim_print(out, "]%s}", binary ? ",\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"binary_data\":true}}]" : "");
}

static void put_json(sim_bytes *out, sim_request *request, const work *w, bool binary)
{
    sim_bytes body = {NULL, 0, 0};
    print_json(&body, w, binary);
    sim_print(out, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\n", w->model);
    if (binary) {
        sim_print(out, "Inference-Header-Content-Length: %zu\r\n", body.n);
        sim_put(&body, w->in, w->count * sizeof(float));
    }
    sim_put_body(out, request, body.bytes, body.n);
    request->body = binary ? SIM_BODY_TAIL : SIM_BODY_NUMBERS;
    sim_give(body.bytes);
}

static void draw_inference(sim_bytes *out, sim_request *request)
{
    const int form = (int)sim_draw(4);
    work w = draw_work(form == 2        ? (sim_one_in(12) ? 12000 : 2000)
                       : sim_one_in(40) ? VALUES_MAX
                       : sim_one_in(4)  ? 16384
                                        : 1500);
    add_result(&w, request);
    if (form < 2)
        put_raw(out, request, &w);
    else
        put_json(out, request, &w, form == 3);
    sim_give(w.in);
}

/* --- documents and mistakes --------------------------------------------------------------------------------------- */

typedef struct plain_row {
    const char *text;
    int status;
    bool closes, ready;
} plain_row;

static const plain_row documents[] = {{"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, false, true},
                                      {"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, false, false},
                                      {"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, false, false},
                                      {"GET /v2/models/matmul HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, false, false}};

static const plain_row mistakes[] = {
    {"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, false, false},
    {"PUT /v2/health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405, false, false},
    {"GET /v2 HTTP/1.1\r\n\r\n", 400, true, false},
    {"GET  /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, true, false},
    {"GET /v2 HTTP/1.1\r\nHost : localhost\r\n\r\n", 400, true, false},
    {"POST /v2/models/reduce_sum/infer?shape=2,2&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
     "5\r\n\r\nabcde",
     400, false, false},
    {"POST /v2/models/reduce_sum/infer?shape=2,x&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
     "4\r\n\r\nabcd",
     400, false, false},
    {"POST /v2/models/nothing/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 404, false, false},
    {"POST /v2/models/matmul/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n{\"a\"", 400, false, false},
    {"POST /v2/models/matmul/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: "
     "chunked\r\n\r\n{}",
     400, true, false},
    {"POST /v2/models/matmul/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, true,
     false},
    {"POST /v2/models/matmul/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413, true, false}};

static void put_row(sim_bytes *out, sim_request *request, const plain_row *row)
{
    sim_put(out, row->text, strlen(row->text));
    request->head_end = request->at + (size_t)(strstr(row->text, "\r\n\r\n") + 4 - row->text);
    request->status = row->status;
    request->closes = row->closes;
    request->ready = row->ready;
}

void sim_request_draw(sim_bytes *out, sim_request *request, int index, sim_tensor *tensor)
{
    *request = (sim_request){.at = out->n, .needs = -1};
    if (sim_one_in(4))
        sim_tensor_draw(out, request, index, tensor);
    else if (sim_one_in(6))
        put_row(out, request, &documents[sim_draw(sizeof documents / sizeof *documents)]);
    else if (sim_one_in(8))
        put_row(out, request, &mistakes[sim_draw(sizeof mistakes / sizeof *mistakes)]);
    else
        draw_inference(out, request);
    request->end = out->n;
}
