/* Ranges for profilers (Nsight), the one door to NVTX: headers alone, and without a tool a load and a branch each.
 *
 * Domain    "kernserve", texts registered once. A range lies around a whole launch, collect, capture or trial: none begins or ends
 *           while a stream is captured.
 * Threads   any: each has ranges of its own, and pops what it pushed. */
#ifndef KS_NVTX_H
#define KS_NVTX_H

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <stdint.h>
#include <stdio.h>

#define KS_NVTX_TABLE(X) X(LAUNCH, "launch") X(COLLECT, "collect") X(CAPTURE, "capture") X(TRIAL, "trial")
typedef enum ks_nvtx_text {
#define X(name, text) KS_NVTX_##name,
    KS_NVTX_TABLE(X)
#undef X
        KS_NVTX_TEXTS
} ks_nvtx_text;

typedef struct ks_nvtx_names {
    nvtxDomainHandle_t domain;
    nvtxStringHandle_t text[KS_NVTX_TEXTS];
} ks_nvtx_names;

inline ks_nvtx_names ks_nvtx_make(void)
{
    static const char *const texts[] = {
#define X(name, text) text,
        KS_NVTX_TABLE(X)
#undef X
    };
    ks_nvtx_names names = {};
    names.domain = nvtxDomainCreateA("kernserve");
    for (int i = 0; i < KS_NVTX_TEXTS; i++) names.text[i] = nvtxDomainRegisterStringA(names.domain, texts[i]);
    return names;
}

/* Made by the first call. */
inline const ks_nvtx_names *ks_nvtx_of(void)
{
    static const ks_nvtx_names names = ks_nvtx_make();
    return &names;
}

inline void ks_nvtx_push(ks_nvtx_text text)
{
    const ks_nvtx_names *names = ks_nvtx_of();
    nvtxEventAttributes_t range = {};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    range.message.registered = names->text[text];
    nvtxDomainRangePushEx(names->domain, &range);
}

inline void ks_nvtx_pop(void)
{
    nvtxDomainRangePop(ks_nvtx_of()->domain);
}

/* "lane 3" of a shard. */
inline void ks_nvtx_name_lane(cudaStream_t stream, int lane)
{
    char name[24];
    snprintf(name, sizeof name, "lane %d", lane);
    nvtxNameCudaStreamA(stream, name);
}

#endif
