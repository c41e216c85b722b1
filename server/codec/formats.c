#include <string.h>
#include <strings.h>

#include "codec/format.h"

const ks_format *const ks_formats[] = {
#define FORMAT(name)
#define FILE_FORMAT(name) &ks_format_##name,
#include "base/formats.def"
    NULL};

const ks_format *ks_file_of(const char *media_type)
{
    if (!media_type) return NULL;
    const size_t length = strcspn(media_type, " \t;");
    for (const ks_format *const *format = ks_formats; *format; format++)
        if (strlen((*format)->content_type) == length && strncasecmp(media_type, (*format)->content_type, length) == 0)
            return *format;
    return NULL;
}
