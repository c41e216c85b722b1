/* What the files of grid.h share: a worker, a thread of the CPU with fibers for the threads of a CTA; workers stay for the next
 * grid. */
#ifndef KS_EMULATE_WORKER_H
#define KS_EMULATE_WORKER_H

#include "cuda_runtime.h"

#include <vector>

enum { WARP = 32, THREADS_MOST = 1024 };
static const size_t DYNAMIC_MOST = 227 << 10; /* bytes of dynamic shared memory */

/* TURNS: lets others go first; UNTIL: so does it, as long as the word is what it was. */
enum fiber_state : char { READY, WAITS, TURNS, UNTIL, DONE };

struct fiber {
    const uint32_t *word; /* UNTIL: these bits of it are no longer `other` */
    uint32_t mask, other;
    void *at;    /* its stack's top while another one runs */
    char *stack; /* NULL: it never ran */
    struct copy {
        void *to;
        const void *from;
        size_t bytes;
        int group;
    };
    std::vector<copy> copies;
    int groups; /* that have ended */
    struct product {
        std::function<void()> work;
        int group;
    };
    std::vector<product> products;
    int product_groups;
    uint32_t cluster_phase; /* of the cluster's barrier, when this thread arrived there */
};

struct warp {
    int arrived, side;
    alignas(16) unsigned char value[2][WARP][EMULATE_EACH]; /* in turn, so that a fast lane spoils nothing */
    size_t bytes;
};

struct worker;

/* Workers that run the CTAs of a cluster. */
struct team {
    worker *members[16];
    int size;
    uint32_t met, meetings;  /* of the workers */
    uint32_t arrived, phase; /* of the threads, at the cluster's barrier */
    bool live[16];           /* the CTA has begun and has not ended */
};

enum { MEETINGS = 16 };

struct emulate_columns; /* tensor.cc */

struct worker {
    fiber_state states[THREADS_MOST];
    fiber fibers[THREADS_MOST];
    warp warps[THREADS_MOST / WARP];
    int threads, done, now, step; /* step: from one thread to the next in turn */
    int arrived, side, any[2];    /* at the barrier */
    struct {
        int arrived;
        uint32_t phase;
    } meetings[MEETINGS];
    struct task {
        int rank;
        std::function<void()> work;
    };
    std::vector<task> later;
    double waits_since; /* nobody but threads that take turns has gone on */
    bool at_once;       /* what the chip does by itself */
    bool awaited;       /* some thread has waited for the launch in front */
    team *cluster;
    int rank;
    unsigned char *dynamic, *rest; /* where shared memory lies */
    emulate_columns *columns;      /* kept from one product to the next; NULL: there was none */
    void *home;                    /* where the CTA was begun: its stack's top */
    const std::function<void()> *kernel;
};
extern thread_local worker *self; /* not static: spoil_shared() writes over it */

void resume(worker *w, int thread,
            void **from); /* returns where another one resumes what has left its stack's top in *from */
void arrive(const fiber::copy &copy);

#endif
