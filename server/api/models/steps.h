/* The steps of a model's plan, for its document. Any thread. */
#ifndef KS_API_MODEL_STEPS_H
#define KS_API_MODEL_STEPS_H
#include "base/text.h"
#include "kernserve/chain.h"
#include "observe/roofline/roofline.h"

/* "arena_bytes" and "steps", with a comma in front. */
void ks_model_steps_write(ks_text *out, const ks_plan *plan, const ks_ceilings *ceilings);
#endif
