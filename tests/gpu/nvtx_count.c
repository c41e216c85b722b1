/* A library that NVTX loads in a profiler's place (NVTX_INJECTION64_PATH): counts the ranges of the domain "kernserve" by their
 * registered texts, those that are pushed within another one of their thread, and named streams; writes "TEXT COUNT" lines to the file
 * KS_NVTX_COUNTS when the process ends.
 *
 * Threads  any may push; counts are atomic, the texts are registered before they are used. */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS_MAX = 64 };

static char texts[TEXTS_MAX][32];
static _Atomic int texts_count;
static _Atomic long pushed[TEXTS_MAX], popped, nested, unregistered, streams, domains;
static _Thread_local int depth;

/* Libraries have domains of their own. */
static bool is_ours(nvtxDomainHandle_t domain)
{
    return (const void *)domain == texts;
}

static nvtxDomainHandle_t NVTX_API domain_create(const char *name)
{
    const bool ours = strcmp(name, "kernserve") == 0;
    atomic_fetch_add(&domains, ours);
    return (nvtxDomainHandle_t)(ours ? texts : texts + 1);
}

/* A text's handle is its place + 1. */
static nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t domain, const char *text)
{
    if (!is_ours(domain)) return NULL;
    const int place = atomic_fetch_add(&texts_count, 1);
    if (place < TEXTS_MAX) snprintf(texts[place], sizeof texts[place], "%s", text);
    return (nvtxStringHandle_t)(intptr_t)(place + 1);
}

static int NVTX_API range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range)
{
    const int place = (int)(intptr_t)range->message.registered - 1;
    if (!is_ours(domain)) return NVTX_NO_PUSH_POP_TRACKING;
    if (range->messageType != NVTX_MESSAGE_TYPE_REGISTERED || place < 0 || place >= TEXTS_MAX)
        atomic_fetch_add(&unregistered, 1);
    else
        atomic_fetch_add(&pushed[place], 1);
    if (depth > 0) atomic_fetch_add(&nested, 1);
    return depth++;
}

static int NVTX_API range_pop(nvtxDomainHandle_t domain)
{
    if (!is_ours(domain)) return NVTX_NO_PUSH_POP_TRACKING;
    atomic_fetch_add(&popped, 1);
    return --depth;
}

static void NVTX_API name_stream(void *stream, const char *name)
{
    (void)stream;
    if (strncmp(name, "lane ", 5) == 0) atomic_fetch_add(&streams, 1);
}

static void write_counts(void)
{
    const char *path = getenv("KS_NVTX_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    const int count = atomic_load(&texts_count);
    for (int i = 0; i < count && i < TEXTS_MAX; i++) fprintf(file, "%s %ld\n", texts[i], atomic_load(&pushed[i]));
    fprintf(file, "popped %ld\nnested %ld\nunregistered %ld\nstreams %ld\ndomains %ld\n", atomic_load(&popped),
            atomic_load(&nested), atomic_load(&unregistered), atomic_load(&streams), atomic_load(&domains));
    fclose(file);
}

/* One function of a module's table, where the module is that new. */
static void take(const NvtxExportTableCallbacks *callbacks, NvtxCallbackModule module, unsigned id,
                 NvtxFunctionPointer function)
{
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (callbacks->GetModuleFunctionTable(module, &table, &size) && id < size) *table[id] = function;
}

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    if (!callbacks) return 0;
    take(callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateA, (NvtxFunctionPointer)domain_create);
    take(callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA, (NvtxFunctionPointer)register_string);
    take(callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, (NvtxFunctionPointer)range_push);
    take(callbacks, NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, (NvtxFunctionPointer)range_pop);
    take(callbacks, NVTX_CB_MODULE_CUDART, NVTX_CBID_CUDART_NameCudaStreamA, (NvtxFunctionPointer)name_stream);
    atexit(write_counts);
    return 1;
}
