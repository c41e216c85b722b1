/* In place of server/daemon/backends.c in kernserve_faulty, the daemon that tests break: its backends are wrapped, and
 * KS_FAULT=CALL:N:KIND says which call fails how, counted from the start of the process. What the known-answer test of
 * each shard calls counts as well. KS_POLLED: the engine polls, as for a GPU. KS_HOLD=PATH: while there is a file of that name no work ends. KS_TRAP=PATH: a launch that finds a file
 * of that name takes it away, and a kernel traps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake/backend_faulty.h"
#include "daemon/backends.h"

#ifdef KS_HAVE_TRAP
void ks_fake_trap(void); /* trap.cu */
static void (*const traps)(void) = ks_fake_trap;
#else
static void (*const traps)(void) = NULL;
#endif

static int place(const char *word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (words[i] && strcmp(word, words[i]) == 0) return i;
    fprintf(stderr, "KS_FAULT: what is '%s'?\n", word);
    exit(64);
}

static const ks_backend *wrap(const ks_backend *inner)
{
    static const char *const calls[KS_FAULT_CALLS] = {
        [KS_FAULT_OPEN] = "open",       [KS_FAULT_SLOT_INIT] = "slot_init", [KS_FAULT_LANE_OPEN] = "lane_open",
        [KS_FAULT_PREPARE] = "prepare", [KS_FAULT_CAPTURE] = "capture",     [KS_FAULT_LAUNCH] = "launch",
        [KS_FAULT_POLL] = "poll"};
    static const char *const kinds[] = {
        [KS_FAULT_OOM] = "oom", [KS_FAULT_STICKY] = "sticky", [KS_FAULT_HANG] = "hang", [KS_FAULT_GARBAGE] = "garbage"};
    if (!inner) return NULL;
    const ks_backend *backend = ks_faulty_backend(inner);
    ks_faulty_polled(getenv("KS_POLLED") != NULL);
    ks_faulty_hold(getenv("KS_HOLD"));
    ks_faulty_trap(getenv("KS_TRAP"), inner == ks_backend_cuda ? traps : NULL);
    const char *fault = getenv("KS_FAULT");
    if (!fault) return backend;
    char call[16], kind[16];
    int n;
    if (sscanf(fault, "%15[^:]:%d:%15s", call, &n, kind) != 3 || n < 1) {
        fprintf(stderr, "KS_FAULT: '%s' is not CALL:N:KIND\n", fault);
        exit(64);
    }
    ks_faulty_arm((ks_fault_call)place(call, calls, KS_FAULT_CALLS), n,
                  (ks_fault_kind)place(kind, kinds, sizeof kinds / sizeof kinds[0]));
    return backend;
}

#define ROW(TITLE, name, gpu)                                                                                          \
    static const ks_backend *name(void)                                                                                \
    {                                                                                                                  \
        return wrap(ks_backend_##name);                                                                                \
    }
KS_BACKEND_TABLE(ROW)
#undef ROW

const ks_backend_row *ks_backends(void)
{
#define ROW(TITLE, name, gpu) {#name, #TITLE, name, gpu},
    static const ks_backend_row rows[] = {KS_BACKEND_TABLE(ROW){.name = NULL}};
    return rows;
}
