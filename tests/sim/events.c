/* Owns       the log of a seed: printed with --verbose, else only hashed.
 * Interface  sim.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/sim.h"
#include "sim/world.h"

static uint64_t hash;

void sim_events_begin(void)
{
    hash = 14695981039346656037u;
}

static void mix(uint64_t value)
{
    hash = (hash ^ value) * 1099511628211u;
    hash ^= hash >> 29;
}

void sim_event(const char *what, int64_t a, int64_t b)
{
    const int64_t now_ns = sim_world_now_ns();
    for (const char *c = what; *c; c++) mix((unsigned char)*c);
    mix((uint64_t)now_ns);
    mix((uint64_t)a);
    mix((uint64_t)b);
    if (sim_verbose)
        printf("%6" PRId64 ".%09" PRId64 "  %-28s %" PRId64 " %" PRId64 "\n", now_ns / SIM_S, now_ns % SIM_S, what, a,
               b);
}

void sim_event_text(const char *what, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) mix((unsigned char)text[i]);
    if (!sim_verbose) return;
    printf("%40s: ", what);
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n')
            printf("\\n");
        else if (text[i] >= ' ' && text[i] < 127)
            putchar(text[i]);
        else if (text[i] != '\r')
            printf("\\x%02x", (unsigned char)text[i]);
    printf("\n");
}

uint64_t sim_events_hash(void)
{
    return hash;
}

_Noreturn void sim_wrong(const char *what, int64_t a, int64_t b)
{
    const int64_t now_ns = sim_world_now_ns();
    fflush(stdout);
    fprintf(sim_report,
            "sim: seed %" PRIu64 ", at %" PRId64 ".%09" PRId64 ": %s (%" PRId64 ", %" PRId64 ")\n"
            "sim: the same once more, with its events: %s --seed %" PRIu64 " --verbose\n",
            sim.number, now_ns / SIM_S, now_ns % SIM_S, what, a, b, sim_name, sim.number);
    exit(1);
}
