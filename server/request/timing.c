#include "request/timing.h"

#include <string.h>

int64_t ks_times_deadline(const ks_times *times, int64_t asked_us, int64_t limit_ns)
{
    int64_t wait_ns = limit_ns;
    if (asked_us > 0 && asked_us < wait_ns / 1000) wait_ns = asked_us * 1000;
    return times->first_ns + wait_ns;
}

void ks_times_phases(const ks_times *times, const ks_job *job, bool ran, int64_t *phase_ns)
{
    for (int i = 0; i < KS_PHASES; i++) phase_ns[i] = -1;
    if (!ran) {
        /* Nothing can be said of a refused request but how long its words took. */
        phase_ns[KS_PHASE_decode] = times->decode_ns;
        return;
    }
    /* Work that needed no lane (an empty output) was never launched. */
    int64_t launched = job->launched_ns >= job->submitted_ns ? job->launched_ns : job->done_ns;
    phase_ns[KS_PHASE_receive] = job->submitted_ns - times->first_ns - times->decode_ns;
    phase_ns[KS_PHASE_decode] = times->decode_ns;
    phase_ns[KS_PHASE_queue] = launched - job->submitted_ns;
    if (job->h2d_ns > 0) phase_ns[KS_PHASE_h2d] = job->h2d_ns;
    if (job->d2h_ns > 0) phase_ns[KS_PHASE_d2h] = job->d2h_ns;
    if (launched < job->done_ns) phase_ns[KS_PHASE_compute] = job->done_ns - launched - job->h2d_ns - job->d2h_ns;
    phase_ns[KS_PHASE_encode] = times->answered_ns - job->done_ns;
}

static char *put_text(char *out, const char *text)
{
    size_t n = strlen(text);
    memcpy(out, text, n);
    return out + n;
}

static char *put_number(char *out, uint64_t number)
{
    char digits[20];
    int n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (n > 0) *out++ = digits[--n];
    return out;
}

/* Microseconds as milliseconds with three decimals. */
static char *put_ms(char *out, int64_t us)
{
    const uint64_t whole = us > 0 ? (uint64_t)us / 1000 : 0;
    const unsigned rest = us > 0 ? (unsigned)((uint64_t)us % 1000) : 0;
    if (whole < 10)
        *out++ = (char)('0' + whole);
    else
        out = put_number(out, whole);
    out[0] = '.';
    out[1] = (char)('0' + rest / 100);
    out[2] = (char)('0' + rest / 10 % 10);
    out[3] = (char)('0' + rest % 10);
    return out + 4;
}

static int64_t to_us(int64_t ns)
{
    return (ns + 500) / 1000;
}

const char *ks_graph_name(ks_graph graph)
{
    static const char *const graphs[] = {[KS_GRAPH_NONE] = "none", [KS_GRAPH_MISS] = "miss", [KS_GRAPH_HIT] = "hit"};
    return graphs[graph];
}

static char *put_trace(char *out, const ks_identity *identity)
{
    out = put_text(out, ", trace;desc=00-");
    out = put_text(out, identity->trace_id);
    out = put_text(out, "-");
    out = put_text(out, identity->span_id);
    return put_text(out, identity->sampled ? "-01" : "-00");
}

/* Requests and rows of the launch. */
static char *put_join(char *out, const ks_job *job)
{
    out = put_number(put_text(out, ", join;desc=\""), (uint64_t)job->batch_count);
    out = put_number(put_text(out, "/"), (uint64_t)job->batch_rows);
    return put_text(out, "\"");
}

void ks_times_text(const ks_times *times, const ks_job *job, const ks_identity *identity, char *out)
{
    enum { LABEL = 16 };
    static const struct {
        char text[LABEL]; /* copied whole, which takes two instructions */
        size_t length;
    } labels[KS_PHASES] = {
#define X(name) {#name ";dur=", sizeof #name + 4},
        KS_PHASE_TABLE(X)
#undef X
    };
    int64_t phase_ns[KS_PHASES];
    int64_t past_ns = 0, past_us = 0;
    ks_times_phases(times, job, true, phase_ns);
    for (int i = 0; i < KS_PHASES; i++) {
        if (phase_ns[i] < 0) continue;
        past_ns += phase_ns[i];
        const int64_t us = to_us(past_ns);
        memcpy(out, labels[i].text, LABEL);
        out = put_ms(out + labels[i].length, us - past_us);
        memcpy(out, ", ", 2);
        out += 2;
        past_us = us;
    }
    out = put_text(out, "total;dur=");
    out = put_ms(out, past_us);
    out = put_text(out, ", graph;desc=");
    out = put_text(out, ks_graph_name(job->graph));
    if (job->batch_rows) out = put_join(out, job);
    if (identity->trace_id[0]) out = put_trace(out, identity);
    *out = '\0';
}

/* Each figure is the difference of two rounded sums, so that they add up. */
static int64_t step_us(int64_t *past_ns, int64_t ns)
{
    const int64_t us = to_us(*past_ns);
    *past_ns += ns;
    return to_us(*past_ns) - us;
}

void ks_times_steps(const ks_job *job, char *out)
{
    const ks_program *program = job->plan->program;
    int64_t past_ns = 0, rest_us = 0;
    for (int i = 0; i < program->count && job->step_ns[i] >= 0; i++) {
        const int64_t us = step_us(&past_ns, job->step_ns[i]);
        if (i >= KS_TIMING_STEPS) {
            rest_us += us;
            continue;
        }
        out = put_text(out, ", node;desc=\"");
        out = put_text(out, ks_step_name(job->plan->spec.op->chain, &program->step[i]));
        out = put_ms(put_text(out, "\";dur="), us);
    }
    if (program->count > KS_TIMING_STEPS) out = put_ms(put_text(out, ", rest;dur="), rest_us);
    for (int i = 0; i < program->views && program->count + i < KS_TIMING_STEPS; i++) {
        out = put_text(out, ", view;desc=\"");
        out = put_text(out, job->plan->spec.op->chain->node[program->view[i]].name);
        out = put_text(out, "\"");
    }
    *out = '\0';
}
