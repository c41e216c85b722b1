#include "engine/plan_board.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = sizeof(uint64_t) };
static_assert(sizeof(ks_plan_facts) % WORD == 0 && sizeof(ks_plan_counts) % WORD == 0, "records are whole words");

struct ks_plan_board {
    _Alignas(64) ks_plan_place *places;
    _Atomic int used;
    /* the shard's: */
    ks_plan_place *free;
    uint64_t last; /* number that was given out */
};

struct ks_plan_boards {
    int writers;
    ks_plan_board *board;
};

ks_plan_boards *ks_boards_open(int writers)
{
    ks_plan_boards *boards = calloc(1, sizeof *boards);
    if (!boards) return NULL;
    boards->board = aligned_alloc(_Alignof(ks_plan_board), sizeof *boards->board * (size_t)writers);
    if (!boards->board) {
        free(boards);
        return NULL;
    }
    memset(boards->board, 0, sizeof *boards->board * (size_t)writers);
    boards->writers = writers;
    for (int i = 0; i < writers; i++) {
        boards->board[i].places = calloc(KS_BOARD_PLACES, sizeof(ks_plan_place));
        if (boards->board[i].places) continue;
        ks_boards_close(&boards);
        return NULL;
    }
    return boards;
}

void ks_boards_close(ks_plan_boards **boards)
{
    if (!*boards) return;
    for (int i = 0; i < (*boards)->writers; i++) free((*boards)->board[i].places);
    free((*boards)->board);
    free(*boards);
    *boards = NULL;
}

ks_plan_board *ks_boards_writer(ks_plan_boards *boards, int index)
{
    assert(index >= 0 && index < boards->writers);
    return &boards->board[index];
}

/* --- the writer --------------------------------------------------------------------------------------------------- */

static ks_plan_place *free_place(ks_plan_board *board)
{
    ks_plan_place *place = board->free;
    const int used = atomic_load_explicit(&board->used, memory_order_relaxed);
    if (place) {
        board->free = place->next_free;
    } else if (used < KS_BOARD_PLACES) {
        place = &board->places[used];
        atomic_store_explicit(&board->used, used + 1, memory_order_release);
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

void ks_board_put(ks_plan_board *board, ks_plan *plan, const char *path)
{
    ks_plan_facts facts;
    ks_plan_counts counts = {0};
    if (plan->place)
        get_words(plan->place->counts, &counts, KS_COUNTS_WORDS);
    else
        plan->place = free_place(board);
    if (!plan->place) return;
    counts.timed_jobs = counts.timed_ns = 0;
    facts_of(plan, path, &facts);
    atomic_store_explicit(&plan->place->number, 0, memory_order_relaxed);
    put_words(plan->place->counts, &counts, KS_COUNTS_WORDS);
    put_words(plan->place->facts, &facts, KS_FACTS_WORDS);
    atomic_store_explicit(&plan->place->number, ++board->last, memory_order_release);
}

void ks_board_take(ks_plan_board *board, ks_plan *plan)
{
    ks_plan_place *place = plan->place;
    if (!place) return;
    plan->place = NULL;
    atomic_store_explicit(&place->number, 0, memory_order_relaxed);
    place->next_free = board->free;
    board->free = place;
}

/* --- readers ------------------------------------------------------------------------------------------------------ */

int ks_boards_writers(const ks_plan_boards *boards)
{
    return boards->writers;
}

int ks_board_used(const ks_plan_boards *boards, int writer)
{
    return atomic_load_explicit(&boards->board[writer].used, memory_order_acquire);
}

bool ks_board_read(const ks_plan_boards *boards, int writer, int place, ks_plan_row *out)
{
    const ks_plan_place *at = &boards->board[writer].places[place];
    const uint64_t number = atomic_load_explicit(&at->number, memory_order_acquire);
    if (number == 0) return false;
    get_words(at->facts, &out->facts, KS_FACTS_WORDS);
    get_words(at->counts, &out->counts, KS_COUNTS_WORDS);
    return atomic_load_explicit(&at->number, memory_order_relaxed) == number;
}

void ks_plan_row_of(const ks_plan *plan, const char *path, ks_plan_row *out)
{
    facts_of(plan, path, &out->facts);
    out->counts = (ks_plan_counts){.timed_jobs = plan->timed_jobs, .timed_ns = (uint64_t)plan->timed_ns};
}
