/* The program of a simulator: which seeds are run, and what ends one that does not come back.
 *
 * Interface  PROGRAM [--seed N] [--seeds COUNT] [--from N] [--verbose] [--twice]: ends with 1 at the first seed that breaks a promise.
 *            KS_CASES: how many seeds, where the command does not say. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/sim.h"

enum { PRESET = 2000, HANGS_AFTER_S = 20 };

sim_seed sim;
bool sim_verbose;
FILE *sim_report;

/* An assertion of the product's, a bad address, or a loop that makes no call. */
static void on_signal(int number)
{
    char text[128];
    const int n = snprintf(text, sizeof text, "sim: seed %" PRIu64 " ends with signal %d%s\n", sim.number, number,
                           number == SIGALRM ? ": it hangs" : "");
    if (n > 0 && write(2, text, (size_t)n) < 0) _exit(2);
    _exit(1);
}

typedef struct command {
    uint64_t first, count;
    bool twice;
} command;

static command read_command(int count, char **words)
{
    const char *cases = getenv("KS_CASES");
    command out = {.first = 1, .count = cases ? strtoull(cases, NULL, 10) : PRESET};
    for (int i = 1; i < count; i++) {
        const uint64_t value = i + 1 < count ? strtoull(words[i + 1], NULL, 10) : 0;
        if (strcmp(words[i], "--verbose") == 0)
            sim_verbose = true;
        else if (strcmp(words[i], "--twice") == 0)
            out.twice = true;
        else if (strcmp(words[i], "--seed") == 0 && ++i < count)
            out.first = value, out.count = 1;
        else if (strcmp(words[i], "--from") == 0 && ++i < count)
            out.first = value;
        else if (strcmp(words[i], "--seeds") == 0 && ++i < count)
            out.count = value;
        else
            exit(fprintf(stderr, "sim [--seed N] [--from N] [--seeds COUNT] [--verbose] [--twice]\n") > 0 ? 64 : 1);
    }
    return out;
}

int main(int count, char **words)
{
    const command asked = read_command(count, words);
    uint64_t all = 0;
    sim_report = stderr;
    sim_once();
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    const clock_t begun = clock();
    for (uint64_t seed = asked.first; seed < asked.first + asked.count; seed++) {
        alarm(HANGS_AFTER_S);
        const uint64_t hash = sim_run(seed);
        if (asked.twice) sim_check(sim_run(seed) == hash, "a second run has other events", (int64_t)seed, 0);
        all = all * 31 + hash;
    }
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    printf("%s: %" PRIu64 " seeds from %" PRIu64 ", events %016" PRIx64 "\n", sim_name, asked.count, asked.first, all);
    fprintf(sim_report, "sim: %.0f seeds a second of processor time\n",
            seconds > 0 ? (double)asked.count / seconds : 0);
    return 0;
}
