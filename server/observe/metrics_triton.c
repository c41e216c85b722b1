/* Triton's names for what is known here under our own, for tools and dashboards that ask for those: perf_analyzer's
 * --collect-metrics matches lines with gpu_uuid as their only label, and no other sign before the number. */
#include "observe/metrics.h"
#include "observe/metrics_sheet.h"
#include "base/model.h"
#include "observe/nvml.h"

enum { NV_INFERENCE = F_nv_output - F_nv_success + 1 };

static uint64_t figure(const ks_model_stats *of, int which)
{
    const uint64_t all[NV_INFERENCE] = {
        of->success_count,           of->fail_count,      of->inference_count,         of->execution_count,
        of->success_ns / 1000,       of->queue_ns / 1000, of->compute_input_ns / 1000, of->compute_infer_ns / 1000,
        of->compute_output_ns / 1000};
    return all[which];
}

static void write_models(ks_sheet *sheet, const ks_metrics *metrics)
{
    ks_model_stats stats[KS_MODELS_MAX];
    const int models = ks_model_count();
    for (int i = 0; i < models; i++) ks_metrics_stats(metrics, ks_model_at(i)->index, &stats[i]);
    for (int f = 0; f < NV_INFERENCE; f++) {
        ks_sheet_begin(sheet, F_nv_success + f);
        for (int i = 0; i < models; i++) {
            ks_sheet_label(sheet, 0, "model", ks_model_at(i)->series);
            ks_sheet_label(sheet, 1, "version", "1");
            ks_sheet_sample(sheet, figure(&stats[i], f));
        }
    }
}

/* What the GPU does not tell has no line: a 0 would be a reading. */
static void write_gpu(ks_sheet *sheet, const char *uuid, const ks_gpu_figures *gpu)
{
    const struct {
        int family;
        bool whole;
        double value;
    } lines[] = {{F_nv_utilization, false, gpu->utilization},
                 {F_nv_memory_total, true, (double)gpu->memory_total_bytes},
                 {F_nv_memory_used, true, (double)gpu->memory_used_bytes},
                 {F_nv_power, false, (double)gpu->power_mw / 1e3},
                 {F_nv_power_limit, false, (double)gpu->power_limit_mw / 1e3},
                 {F_nv_energy, false, (double)gpu->energy_mj / 1e3}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (lines[i].value < 0) continue;
        ks_sheet_begin(sheet, lines[i].family);
        ks_sheet_label(sheet, 0, "gpu_uuid", uuid);
        if (lines[i].whole)
            ks_sheet_sample(sheet, (uint64_t)lines[i].value);
        else
            ks_sheet_real(sheet, lines[i].value);
    }
}

void ks_sheet_triton(ks_sheet *sheet, const ks_metrics *metrics, const ks_document *page)
{
    write_models(sheet, metrics);
    if (page->gpu) write_gpu(sheet, page->device.uuid, page->gpu);
}
