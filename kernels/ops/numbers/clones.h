/* Loops that become vector code: one function, several compilations. */
#ifndef KS_OPS_CLONES_H
#define KS_OPS_CLONES_H

/* The function is compiled for several vector widths and the loader picks one. Sanitizers run their own code in the
 * loader's choice before they are ready, so under them there is the baseline only. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) &&                       \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KS_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KS_CLONES
#endif

#endif
