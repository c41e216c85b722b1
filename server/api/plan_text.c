#include "api/plan_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- figures ------------------------------------------------------------------------------------------------------ */

static bool is_linked(const ks_plan_row *row, const ks_device_info *device)
{
    return strcmp(row->facts.path, "mapped") == 0 && device->linked;
}

ks_plan_figures ks_plan_figures_of(const ks_plan_row *row, const ks_device_info *device, const ks_ceilings *ceilings)
{
    const ks_spec *spec = &row->facts.spec;
    const ks_occupancy *occupancy = &row->facts.kernel_info.occupancy;
    const ks_work work = {.in_bytes = row->facts.read_bytes,
                          .out_bytes = (double)ks_spec_written_bytes(spec),
                          .flops = spec->flops,
                          .link = is_linked(row, device)};
    ks_plan_figures figures = {.roofline = ks_roofline_of(&work, ceilings), .bytes = work.in_bytes + work.out_bytes};
    if (row->counts.timed_jobs && !row->facts.join_rows) /* whose launches have fewer rows than its spec */
        figures.us = (double)row->counts.timed_ns / 1e3 / (double)row->counts.timed_jobs;
    if (figures.us > 0) {
        figures.gbs = figures.bytes / figures.us / 1e3;
        figures.tflops = work.flops / figures.us / 1e6;
        figures.share = figures.roofline.us / figures.us;
    }
    const int64_t at_once = (int64_t)occupancy->ctas * occupancy->sms, grid = row->facts.kernel_info.grid;
    if (at_once > 0 && grid > 0) {
        const int64_t waves = (grid + at_once - 1) / at_once;
        figures.waves = (double)waves;
        figures.last_wave = (double)(grid - (waves - 1) * at_once) / (double)at_once;
    }
    return figures;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void put_tensor(ks_text *out, const char *name, const ks_tensor *tensor)
{
    char dims[KS_RANK_MAX * 21];
    ks_dims_text(tensor, dims, sizeof dims);
    ks_text_printf(out, "{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[%s]%s}", name, ks_dtype_name(tensor->dtype),
                   dims, tensor->fixed ? ",\"resident\":true" : "");
}

static void put_tensors(ks_text *out, const ks_spec *spec)
{
    const char *separator = "";
    ks_text_puts(out, ",\"inputs\":[");
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        ks_text_puts(out, separator);
        put_tensor(out, spec->op->inputs[i].name, &spec->in[i]);
        separator = ",";
    }
    ks_text_puts(out, "],\"outputs\":[");
    for (int i = 0; i < spec->outputs; i++) {
        if (i > 0) ks_text_puts(out, ",");
        put_tensor(out, ks_op_output(spec->op, i), &spec->out[i]);
    }
    ks_text_puts(out, "]");
}

static void put_axes(ks_text *out, const ks_axes *axes)
{
    for (int i = 0; i < axes->count; i++) ks_text_printf(out, "%s%d", i > 0 ? "," : "", axes->axis[i]);
    if (axes->count < 0) ks_text_puts(out, "all");
}

/* In JSON a list; null: not of this work. */
static void put_list(ks_text *out, const ks_integers *list, bool json)
{
    if (list->count < 0) {
        ks_text_puts(out, "null");
        return;
    }
    if (json) ks_text_puts(out, "[");
    for (int i = 0; i < list->count; i++) ks_text_printf(out, "%s%" PRId64, i > 0 ? "," : "", list->value[i]);
    if (json) ks_text_puts(out, "]");
}

/* quote: around what is no number, "\"" in JSON. */
static void put_value(ks_text *out, const ks_spec *spec, int index, const char *quote)
{
    const ks_param *param = &spec->op->params[index];
    const ks_value *value = &spec->params[index];
    switch (param->kind) {
    case KS_PARAM_INT:
        ks_text_printf(out, "%" PRId64, value->i);
        break;
    case KS_PARAM_BOOL:
        ks_text_puts(out, value->i ? "true" : "false");
        break;
    case KS_PARAM_NUMBER:
        if (isfinite(value->d))
            ks_text_printf(out, "%.9g", value->d);
        else if (param->infinite && isinf(value->d))
            ks_text_printf(out, "%s%sinf%s", quote, value->d < 0 ? "-" : "", quote);
        else
            ks_text_puts(out, "null"); /* not of this work, or no bound */
        break;
    case KS_PARAM_CHOICE:
        ks_text_printf(out, "%s%s%s", quote, param->choices[value->i], quote);
        break;
    case KS_PARAM_AXES:
        ks_text_puts(out, quote);
        put_axes(out, &value->axes);
        ks_text_puts(out, quote);
        break;
    case KS_PARAM_LIST:
        put_list(out, ks_list_of(spec, index), quote[0] != 0);
        break;
    }
}

static void put_parameters(ks_text *out, const ks_spec *spec)
{
    ks_text_puts(out, ",\"parameters\":{");
    for (int i = 0; i < spec->op->params_count; i++) {
        ks_text_printf(out, "%s\"%s\":", i > 0 ? "," : "", spec->op->params[i].name);
        put_value(out, spec, i, "\"");
    }
    ks_text_puts(out, "}");
}

/* before, then the number, or null for what is not known. */
static void put_known(ks_text *out, const char *before, double value)
{
    ks_text_puts(out, before);
    if (value > 0)
        ks_text_printf(out, "%.6g", value);
    else
        ks_text_puts(out, "null");
}

static void put_word(ks_text *out, const char *before, const char *word)
{
    ks_text_puts(out, before);
    if (word)
        ks_text_json(out, word, strlen(word));
    else
        ks_text_puts(out, "null");
}

static void put_ceiling(ks_text *out, const char *before, const ks_ceiling *ceiling)
{
    put_known(out, before, ceiling->value);
    put_word(out, ",\"source\":", ceiling->source);
    ks_text_puts(out, "}");
}

static void put_ceilings(ks_text *out, const ks_ceilings *ceilings)
{
    put_ceiling(out, ",\"ceilings\":{\"copy_gbs\":{\"value\":", &ceilings->copy_gbs);
    put_ceiling(out, ",\"read_gbs\":{\"value\":", &ceilings->read_gbs);
    put_ceiling(out, ",\"h2d_gbs\":{\"value\":", &ceilings->h2d_gbs);
    put_ceiling(out, ",\"d2h_gbs\":{\"value\":", &ceilings->d2h_gbs);
    put_ceiling(out, ",\"launch_us\":{\"value\":", &ceilings->launch_us);
    put_ceiling(out, ",\"tflops\":{\"value\":", &ceilings->tflops);
    ks_text_printf(out, ",\"cache_bytes\":%.0f}", ceilings->cache_bytes);
}

/* The limit that lets the fewest CTAs be on an SM. */
static const char *limit_of(const ks_occupancy *occupancy)
{
    const struct {
        int ctas;
        const char *name;
    } limits[] = {{occupancy->by_registers, "registers"},
                  {occupancy->by_shared, "shared"},
                  {occupancy->by_threads, "threads"},
                  {occupancy->by_ctas, "ctas"}};
    const char *name = NULL;
    int least = 0;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        if (limits[i].ctas == 0 || (name && limits[i].ctas >= least)) continue;
        least = limits[i].ctas;
        name = limits[i].name;
    }
    return name;
}

static void put_occupancy(ks_text *out, const ks_kernel_info *info)
{
    const ks_occupancy *occupancy = &info->occupancy;
    ks_text_puts(out, ",\"occupancy\":");
    if (occupancy->ctas == 0) {
        ks_text_puts(out, "null");
        return;
    }
    ks_text_printf(out,
                   "{\"registers\":%d,\"static_shared_bytes\":%zu,\"dynamic_shared_bytes\":%zu,\"ctas\":%d,"
                   "\"ctas_by\":{",
                   occupancy->registers, occupancy->static_shared_bytes, info->shared_bytes, occupancy->ctas);
    put_known(out, "\"registers\":", occupancy->by_registers);
    put_known(out, ",\"shared\":", occupancy->by_shared);
    put_known(out, ",\"threads\":", occupancy->by_threads);
    put_known(out, ",\"ctas\":", occupancy->by_ctas);
    ks_text_printf(out, "},\"warps\":%d,\"warps_max\":%d", occupancy->warps, occupancy->warps_max);
    put_word(out, ",\"limit\":", limit_of(occupancy));
    ks_text_puts(out, "}");
}

static void put_waves(ks_text *out, const ks_plan_figures *figures)
{
    if (figures->waves > 0)
        ks_text_printf(out, ",\"waves\":{\"number\":%.0f,\"last\":%.3g}", figures->waves, figures->last_wave);
    else
        ks_text_puts(out, ",\"waves\":null");
}

static void put_trials(ks_text *out, const ks_trials *trials)
{
    ks_text_puts(out, ",\"tuned\":");
    if (trials->candidates == 0) {
        ks_text_puts(out, "null");
        return;
    }
    ks_text_printf(out, "{\"candidates\":%d", trials->candidates);
    put_known(out, ",\"us\":", trials->us);
    put_word(out, ",\"heuristic\":", trials->heuristic);
    put_known(out, ",\"heuristic_us\":", trials->heuristic_us);
    ks_text_puts(out, "}");
}

static void put_kernel(ks_text *out, const ks_plan_row *row)
{
    const ks_plan_facts *facts = &row->facts;
    const ks_kernel_info *info = &facts->kernel_info;
    put_word(out, ",\"kernel\":", info->kernel);
    ks_text_printf(out,
                   ",\"grid\":%" PRId64
                   ",\"threads\":%d,\"cluster\":%d,\"shared_bytes\":%zu,\"path\":\"%s\",\"batch_max\":%" PRId64,
                   info->grid, info->threads, info->cluster, info->shared_bytes, facts->path, facts->batch_max);
    if (facts->join_rows) ks_text_printf(out, ",\"join_rows\":%" PRId64, facts->join_rows);
    if (row->bucket) ks_text_printf(out, ",\"bucket\":%d", row->bucket);
}

void ks_plan_json(ks_text *out, const char *model, const ks_plan_row *row, const ks_device_info *device,
                  const ks_ceilings *ceilings)
{
    const ks_plan_figures figures = ks_plan_figures_of(row, device, ceilings);
    const double flops = row->facts.spec.flops;
    ks_text_printf(out, "{\"model_name\":\"%s\",\"model_version\":\"1\",\"backend\":\"%s\"", model, device->backend);
    put_tensors(out, &row->facts.spec);
    put_parameters(out, &row->facts.spec);
    put_kernel(out, row);
    ks_text_printf(out, ",\"bytes\":%.0f,\"flops\":%.0f", figures.bytes, flops);
    put_known(out, ",\"intensity\":", figures.bytes > 0 ? flops / figures.bytes : 0);
    put_ceilings(out, ceilings);
    put_word(out, ",\"bound\":", ks_bound_name(figures.roofline.bound));
    put_known(out, ",\"roofline_us\":", figures.roofline.us);
    ks_text_printf(out, ",\"measured\":{\"of\":\"%s\",\"runs\":%" PRIu64,
                   is_linked(row, device) ? "kernels and link" : "kernels", row->counts.timed_jobs);
    put_known(out, ",\"us\":", figures.us);
    put_known(out, "},\"achieved\":{\"gbs\":", figures.gbs);
    put_known(out, ",\"tflops\":", figures.tflops);
    put_known(out, ",\"share\":", figures.share);
    ks_text_puts(out, "}");
    put_occupancy(out, &row->facts.kernel_info);
    put_waves(out, &figures);
    put_trials(out, &row->facts.trials);
}

void ks_plan_json_counts(ks_text *out, const ks_plan_counts *counts)
{
    ks_text_printf(out, ",\"launches\":%" PRIu64 ",\"jobs\":%" PRIu64 ",\"graph_hits\":%" PRIu64 ",\"busy_us\":%.3f",
                   counts->launches, counts->jobs, counts->graph_hits, (double)counts->timed_ns / 1e3);
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

const char ks_plan_csv_head[] =
    "op,datatype,shapes,parameters,kernel,path,launches,jobs,graph_hits,busy_us,us,bytes,flops,gbs,tflops,bound,"
    "roofline_us,share\r\n";

/* "64x128 128x256": no comma, so that no field of shapes needs quotes. */
static void put_shapes(ks_text *out, const ks_spec *spec)
{
    const char *separator = "";
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        ks_text_puts(out, separator);
        for (int d = 0; d < spec->in[i].rank; d++)
            ks_text_printf(out, "%s%" PRId64, d > 0 ? "x" : "", spec->in[i].dims[d]);
        separator = " ";
    }
}

/* In quotes: lists of axes and kernels' names have commas. */
static void put_csv_parameters(ks_text *out, const ks_spec *spec)
{
    ks_text_puts(out, ",\"");
    for (int i = 0; i < spec->op->params_count; i++) {
        ks_text_printf(out, "%s%s=", i > 0 ? " " : "", spec->op->params[i].name);
        put_value(out, spec, i, "");
    }
    ks_text_puts(out, "\"");
}

/* An empty field is what is not known. */
static void put_field(ks_text *out, double value)
{
    ks_text_puts(out, ",");
    if (value > 0) ks_text_printf(out, "%.6g", value);
}

void ks_plan_csv(ks_text *out, const ks_plan_row *row, const ks_device_info *device, const ks_ceilings *ceilings)
{
    const ks_plan_figures figures = ks_plan_figures_of(row, device, ceilings);
    const ks_plan_counts *counts = &row->counts;
    const ks_spec *spec = &row->facts.spec;
    const char *bound = ks_bound_name(figures.roofline.bound);
    ks_text_printf(out, "%s,%s,", ks_plan_row_name(row), ks_dtype_name(spec->in[0].dtype));
    put_shapes(out, spec);
    put_csv_parameters(out, spec);
    ks_text_printf(out, ",\"%s\",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.3f", row->facts.kernel_info.kernel,
                   row->facts.path, counts->launches, counts->jobs, counts->graph_hits, (double)counts->timed_ns / 1e3);
    put_field(out, figures.us);
    ks_text_printf(out, ",%.0f,%.0f", figures.bytes, spec->flops);
    put_field(out, figures.gbs);
    put_field(out, figures.tflops);
    ks_text_printf(out, ",%s", bound ? bound : "");
    put_field(out, figures.roofline.us);
    put_field(out, figures.share);
    ks_text_puts(out, "\r\n");
}
