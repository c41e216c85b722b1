/* Shapes that definitions want to be ready for: each shard makes their plans and graphs, between its requests, in front of the load's answer.
 * What is loaded before there are shards is made when they open.
 *
 * Interface parts.h; table.h: ks_models_warm
 * Limits    a load waits for it for WAIT_NS, and goes on without.
 * Threads   the loader's; the shards'. */
#include <string.h>
#include <time.h>

#include "models/parts.h"

static const int64_t WAIT_NS = 10000000000;

/* --- the loader --------------------------------------------------------------------------------------------------------- */

void ks_warm_begin(ks_models *models, ks_loaded *loaded)
{
    if (loaded->definition->warm == 0 || !models->serves) return;
    loaded->cold = models->options.shards < 64 ? (UINT64_C(1) << models->options.shards) - 1 : UINT64_MAX;
    atomic_fetch_add(&models->cold_count, 1);
}

void ks_warm_end(ks_models *models, ks_loaded *loaded)
{
    if (!loaded->cold) return;
    loaded->cold = 0;
    atomic_fetch_sub(&models->cold_count, 1);
    pthread_cond_broadcast(&models->warmed);
}

void ks_warm_wait(ks_models *models, const char *label)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WAIT_NS / 1000000000;
    pthread_mutex_lock(&models->lock);
    const int index = ks_model_place(label);
    ks_loaded *const loaded = index < 0 ? NULL : models->current[index];
    while (loaded && models->current[index] == loaded && loaded->cold && !models->stop)
        if (pthread_cond_timedwait(&models->warmed, &models->lock, &until) != 0) break;
    if (loaded && models->current[index] == loaded) ks_warm_end(models, loaded);
    pthread_mutex_unlock(&models->lock);
}

/* --- the shards ----------------------------------------------------------------------------------------------------------- */

/* Whether all is there. What cannot be is not waited for. */
static bool make_all(const ks_loaded *loaded, ks_engine *engine)
{
    bool all = true;
    ks_error ignored;
    ks_spec spec;
    for (int i = 0; i < loaded->definition->warm; i++)
        if (ks_definition_warm(loaded->definition, i, &spec, &ignored) == KS_OK)
            all = ks_engine_make_ready(engine, &spec) && all;
    return all;
}

bool ks_warm_turn(ks_models *models, int shard, ks_engine *engine)
{
    const uint64_t bit = UINT64_C(1) << shard;
    bool goes_on = false;
    if (atomic_load_explicit(&models->cold_count, memory_order_relaxed) == 0) return false;
    if (pthread_mutex_trylock(&models->lock) != 0) return true;
    for (int i = 0; i < KS_MODELS_MAX; i++) {
        ks_loaded *loaded = models->current[i];
        if (!loaded || !(loaded->cold & bit)) continue;
        goes_on = true;
        if (!make_all(loaded, engine)) continue;
        if (loaded->cold == bit)
            ks_warm_end(models, loaded);
        else
            loaded->cold &= ~bit;
    }
    pthread_mutex_unlock(&models->lock);
    return goes_on;
}

static ks_status warm_one(const ks_loaded *loaded, ks_engine *engine, ks_error *error)
{
    ks_status status = KS_OK;
    ks_spec spec;
    for (int i = 0; i < loaded->definition->warm && status == KS_OK; i++) {
        status = ks_definition_warm(loaded->definition, i, &spec, error);
        if (status == KS_OK) status = ks_engine_warm(engine, &spec, error);
        if (status != KS_DEVICE) status = KS_OK; /* requests of that shape will hear why */
    }
    return status;
}

ks_status ks_models_warm(ks_models *models, ks_engine *engine, ks_error *error)
{
    ks_status status = KS_OK;
    pthread_mutex_lock(&models->lock);
    models->serves = true;
    for (int i = 0; i < KS_MODELS_MAX && status == KS_OK; i++)
        if (models->current[i]) status = warm_one(models->current[i], engine, error);
    pthread_mutex_unlock(&models->lock);
    return status;
}
