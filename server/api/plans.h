/* What has run: the plans of all shards, merged. Any thread. */
#ifndef KS_API_PLANS_H
#define KS_API_PLANS_H
#include "api/plan_text.h"
#include "api/view.h"
#include "base/text.h"
#include "observe/workers/ask.h"
#include "request/infer.h"

typedef enum ks_plans_order {
    KS_PLANS_BY_TIME,    /* of kernels, in all: most first */
    KS_PLANS_BY_SHARE,   /* of the roofline: least first, what is not known last */
    KS_PLANS_BY_LAUNCHES /* most first */
} ks_plans_order;

/* One row of each plan that has run: counts are the sums of all shards, the rest is the shard's that ran the most jobs. */
typedef struct ks_plan_list {
    ks_plan_row *row; /* malloc'ed, owned */
    int count;
} ks_plan_list;

/* KS_MEMORY. */
ks_status ks_plans_collect(const ks_api_view *view, ks_plan_list *out, ks_error *error);
void ks_plans_sort(const ks_api_view *view, ks_plan_list *list, ks_plans_order order);
void ks_plans_free(ks_plan_list *list);

/* A plan's object as in /v2/plans, left open for more; what it comes to. Both ask for ceilings that are not known. */
void ks_plans_open_row(const ks_api_view *view, const ks_plan_row *row, ks_text *out);
ks_plan_figures ks_plans_figures(const ks_api_view *view, const ks_plan_row *row);

/* The document /v2/plans. query: raw, top=N and sort=time|share|launches. of_all: of all workers, whose other ones are asked; waits
 * KS_ASK_WAIT_NS at most. KS_PARAMETER, KS_MEMORY. */
ks_status ks_plans_write(const ks_api_view *view, const char *query, bool csv, bool of_all, ks_text *out,
                         ks_error *error);
/* What another worker's ks_plans_write has asked for. */
void ks_plans_part(const ks_api_view *view, const ks_part_ask *ask, ks_text *out);
/* The document of one plan. */
void ks_plans_write_one(const ks_api_view *view, const char *model, const ks_plan *plan, const ks_plan_way *way,
                        ks_text *out);
#endif
