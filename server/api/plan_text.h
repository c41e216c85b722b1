/* A plan as text: JSON of /v2/models/M/plan and /v2/plans, a line of CSV. Any thread. */
#ifndef KS_PLAN_TEXT_H
#define KS_PLAN_TEXT_H
#include "base/text.h"
#include "engine/plan_catalog.h"
#include "observe/roofline/roofline.h"

/* What a plan's figures come to, on its device. */
typedef struct ks_plan_figures {
    ks_roofline roofline;
    double bytes;
    double us;               /* of a job's kernels; 0: none was timed, as what follows */
    double gbs, tflops;      /* achieved */
    double share;            /* of the roofline; 0: not known */
    double waves, last_wave; /* of CTAs; of the last one, the part that it fills; 0: not known */
} ks_plan_figures;
ks_plan_figures ks_plan_figures_of(const ks_plan_row *row, const ks_device_info *device, const ks_ceilings *ceilings);

/* The plan's members as of /v2/models/M/plan, in an object that is left open for more. model: a name of ours. */
void ks_plan_json(ks_text *out, const char *model, const ks_plan_row *row, const ks_device_info *device,
                  const ks_ceilings *ceilings);
/* What has run, ",\"launches\":..."; for the same object. */
void ks_plan_json_counts(ks_text *out, const ks_plan_counts *counts);

extern const char ks_plan_csv_head[]; /* the names of the columns, with the line's end */
void ks_plan_csv(ks_text *out, const ks_plan_row *row, const ks_device_info *device, const ks_ceilings *ceilings);
#endif
