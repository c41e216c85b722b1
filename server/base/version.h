/* What was built, from what: the build system defines it for version.c and the metrics page alone, so that a commit does
 * not compile everything again. */
#ifndef KS_VERSION_H
#define KS_VERSION_H

#ifndef KS_REVISION
#define KS_REVISION "unknown"
#endif
#ifndef KS_CUDA_VERSION
#define KS_CUDA_VERSION "none"
#endif
#ifndef KS_ONEDNN_VERSION
#define KS_ONEDNN_VERSION "none"
#endif
#ifndef KS_MICROHTTPD_VERSION
#define KS_MICROHTTPD_VERSION "unknown"
#endif

void ks_version_print(void); /* to stdout */
const char *ks_version_revision(void);
#endif
