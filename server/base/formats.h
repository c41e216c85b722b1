/* Names of the formats of a body, for whatever counts by them. */
#ifndef KS_FORMATS_H
#define KS_FORMATS_H

typedef enum ks_format_label {
#define FORMAT(name) KS_FORMAT_LABEL_##name,
#include "base/formats.def"
    KS_FORMAT_LABELS
} ks_format_label;

#endif
