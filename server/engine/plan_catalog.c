#include "engine/plan_catalog.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = sizeof(uint64_t) };
static_assert(sizeof(ks_plan_facts) % WORD == 0 && sizeof(ks_plan_counts) % WORD == 0, "records are whole words");

struct ks_plan_catalog {
    _Alignas(64) ks_plan_place *places;
    _Atomic int used;
    /* the shard's: */
    ks_plan_place *free;
    uint64_t last; /* number that was given out */
};

struct ks_plan_catalogs {
    int writers;
    ks_plan_catalog *catalog;
};

ks_plan_catalogs *ks_catalogs_open(int writers)
{
    ks_plan_catalogs *catalogs = calloc(1, sizeof *catalogs);
    if (!catalogs) return NULL;
    catalogs->catalog = aligned_alloc(_Alignof(ks_plan_catalog), sizeof *catalogs->catalog * (size_t)writers);
    if (!catalogs->catalog) {
        free(catalogs);
        return NULL;
    }
    memset(catalogs->catalog, 0, sizeof *catalogs->catalog * (size_t)writers);
    catalogs->writers = writers;
    for (int i = 0; i < writers; i++) {
        catalogs->catalog[i].places = calloc(KS_CATALOG_PLACES, sizeof(ks_plan_place));
        if (catalogs->catalog[i].places) continue;
        ks_catalogs_close(&catalogs);
        return NULL;
    }
    return catalogs;
}

void ks_catalogs_close(ks_plan_catalogs **catalogs)
{
    if (!*catalogs) return;
    for (int i = 0; i < (*catalogs)->writers; i++) free((*catalogs)->catalog[i].places);
    free((*catalogs)->catalog);
    free(*catalogs);
    *catalogs = NULL;
}

ks_plan_catalog *ks_catalogs_writer(ks_plan_catalogs *catalogs, int index)
{
    assert(index >= 0 && index < catalogs->writers);
    return &catalogs->catalog[index];
}

/* --- the writer --------------------------------------------------------------------------------------------------- */

static ks_plan_place *free_place(ks_plan_catalog *catalog)
{
    ks_plan_place *place = catalog->free;
    const int used = atomic_load_explicit(&catalog->used, memory_order_relaxed);
    if (place) {
        catalog->free = place->next_free;
    } else if (used < KS_CATALOG_PLACES) {
        place = &catalog->places[used];
        atomic_store_explicit(&catalog->used, used + 1, memory_order_release);
    }
    return place;
}

static void facts_of(const ks_plan *plan, const char *path, ks_plan_facts *out)
{
    memset(out, 0, sizeof *out);
    ks_spec_copy(&out->spec, &plan->spec);
    out->kernel_info = plan->kernel_info;
    out->trials = plan->trials;
    out->path = path;
    out->batch_max = plan->batch_max;
    out->join_rows = plan->join_rows;
    out->read_bytes = (double)ks_spec_read_bytes(&plan->spec);
}

/* What stands for the op of a chain, which may be gone while others read. */
static const ks_op chain_op = {.name = "model",
                               .inputs_count = KS_INPUTS_MAX,
                               .inputs = {{.name = "INPUT0"},
                                          {.name = "INPUT1"},
                                          {.name = "INPUT2"},
                                          {.name = "INPUT3"},
                                          {.name = "INPUT4"},
                                          {.name = "INPUT5"},
                                          {.name = "INPUT6"},
                                          {.name = "INPUT7"},
                                          {.name = "INPUT8"},
                                          {.name = "INPUT9"},
                                          {.name = "INPUT10"},
                                          {.name = "INPUT11"},
                                          {.name = "INPUT12"},
                                          {.name = "INPUT13"},
                                          {.name = "INPUT14"},
                                          {.name = "INPUT15"}}};
static_assert(KS_INPUTS_MAX == 16, "a name for each input");

static void name_chain(ks_plan_facts *facts)
{
    if (!facts->spec.op->chain) return;
    snprintf(facts->model, sizeof facts->model, "%s", facts->spec.op->name);
    facts->spec.op = &chain_op;
    for (int i = 0; i < KS_INPUTS_MAX; i++) facts->spec.in[i].fixed = facts->spec.in[i].fixed ? &chain_op : NULL;
}

const char *ks_plan_row_name(const ks_plan_row *row)
{
    return row->facts.model[0] ? row->facts.model : row->facts.spec.op->name;
}

/* Each word is stored with release: a reader that sees a new one also sees that the number had gone before it. */
static void put_words(_Atomic uint64_t *to, const void *from, int words)
{
    for (int i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const char *)from + (size_t)i * WORD, WORD);
        atomic_store_explicit(&to[i], word, memory_order_release);
    }
}

static void get_words(const _Atomic uint64_t *from, void *to, int words)
{
    for (int i = 0; i < words; i++) {
        const uint64_t word = atomic_load_explicit(&from[i], memory_order_acquire);
        memcpy((char *)to + (size_t)i * WORD, &word, WORD);
    }
}

void ks_catalog_put(ks_plan_catalog *catalog, ks_plan *plan, const char *path)
{
    ks_plan_facts facts;
    ks_plan_counts counts = {0};
    if (plan->place)
        get_words(plan->place->counts, &counts, KS_COUNTS_WORDS);
    else
        plan->place = free_place(catalog);
    if (!plan->place) return;
    counts.timed_jobs = counts.timed_ns = 0;
    facts_of(plan, path, &facts);
    name_chain(&facts);
    atomic_store_explicit(&plan->place->number, 0, memory_order_relaxed);
    put_words(plan->place->counts, &counts, KS_COUNTS_WORDS);
    put_words(plan->place->facts, &facts, KS_FACTS_WORDS);
    atomic_store_explicit(&plan->place->number, ++catalog->last, memory_order_release);
}

void ks_catalog_take(ks_plan_catalog *catalog, ks_plan *plan)
{
    ks_plan_place *place = plan->place;
    if (!place) return;
    plan->place = NULL;
    atomic_store_explicit(&place->number, 0, memory_order_relaxed);
    place->next_free = catalog->free;
    catalog->free = place;
}

/* --- readers ------------------------------------------------------------------------------------------------------ */

int ks_catalogs_writers(const ks_plan_catalogs *catalogs)
{
    return catalogs->writers;
}

int ks_catalog_used(const ks_plan_catalogs *catalogs, int writer)
{
    return atomic_load_explicit(&catalogs->catalog[writer].used, memory_order_acquire);
}

bool ks_catalog_read(const ks_plan_catalogs *catalogs, int writer, int place, ks_plan_row *out)
{
    const ks_plan_place *at = &catalogs->catalog[writer].places[place];
    const uint64_t number = atomic_load_explicit(&at->number, memory_order_acquire);
    if (number == 0) return false;
    out->bucket = 0;
    get_words(at->facts, &out->facts, KS_FACTS_WORDS);
    get_words(at->counts, &out->counts, KS_COUNTS_WORDS);
    return atomic_load_explicit(&at->number, memory_order_relaxed) == number;
}

void ks_plan_row_of(const ks_plan *plan, const char *path, ks_plan_row *out)
{
    facts_of(plan, path, &out->facts);
    out->bucket = 0;
    out->counts = (ks_plan_counts){.timed_jobs = plan->timed_jobs, .timed_ns = (uint64_t)plan->timed_ns};
}
