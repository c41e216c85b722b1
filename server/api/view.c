/* The engines of the shards, for documents that read their counters: known from the time when a shard has opened its own until it closes it. */
#include "api/view.h"

#include <pthread.h>

#include "base/clock.h"

/* A document may be asked for while a shard still opens its engine, or closes it. Nothing on a request's path takes this.
 */
static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;

int ks_view_device(const ks_api_view *view)
{
    return view->workers && view->workers->count > 1 ? view->workers->row[view->worker].device : -1;
}

ks_status ks_view_check_device(const ks_api_view *view, int device, bool data, ks_error *error)
{
    const ks_workers *workers = view->workers;
    const int row = ks_workers_find(workers, device);
    if (row < 0) return ks_fail(error, KS_PARAMETER, "device=%d: no worker has it", device);
    if (row == view->worker) return KS_OK;
    if (!ks_worker_is_up(&workers->row[row]) || (data && !ks_worker_serves(&workers->row[row], ks_now_ns())))
        return ks_fail(error, KS_UNAVAILABLE, "the worker of device %d is down", device);
    return ks_fail(
        error, KS_UNSUPPORTED,
        "device=%d is another worker's, and this connection cannot go there: use HTTP/1.1 without TLS, with the "
        "head in one piece",
        device);
}

void ks_view_missing(const ks_api_view *view, unsigned answered, ks_text *out)
{
    const char *separator = "";
    ks_text_puts(out, ",\"missing\":[");
    for (int i = 0; i < view->workers->count; i++) {
        if (answered >> i & 1) continue;
        ks_text_printf(out, "%s%d", separator, view->workers->row[i].device);
        separator = ",";
    }
    ks_text_puts(out, "]");
}

void ks_view_engine(ks_api_view *view, int shard, const ks_engine *engine)
{
    pthread_mutex_lock(&engines_lock);
    view->engines[shard] = engine;
    pthread_mutex_unlock(&engines_lock);
}

int ks_view_engines(ks_api_view *view, ks_engine_stats out[KS_SHARDS_MAX])
{
    int shards = 0;
    pthread_mutex_lock(&engines_lock);
    for (int i = 0; i < view->shards && i < KS_SHARDS_MAX; i++) {
        const ks_engine *engine = view->engines[i];
        if (engine) ks_engine_read_stats(engine, &out[shards++]);
    }
    pthread_mutex_unlock(&engines_lock);
    return shards;
}
