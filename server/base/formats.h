/* Names of the formats of a body, for whatever counts by them. */
#ifndef KS_FORMATS_H
#define KS_FORMATS_H

typedef enum ks_encoding {
#define FORMAT(name) KS_ENCODING_##name,
#include "base/formats.def"
    KS_ENCODINGS
} ks_encoding;

#endif
