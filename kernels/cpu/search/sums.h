/* Sums of products, squares and squared differences of 16 pairs of vectors at a time. */
#ifndef KS_CPU_SEARCH_SUMS_H
#define KS_CPU_SEARCH_SUMS_H

#include "cpu/simd.h"

/* x and y: vectors of `count` floats, a multiple of KS_WIDE. Adds sum 4 i + j, of x[i] and y[j], to to[4 i + j]; of one x (ks_search_*_1) sum j
 * of it and y[j]. A sum has the same bits from either function, at any place and beside any others: lane l adds the elements of index l
 * modulo KS_WIDE, and the lanes are added by halves. */
typedef void ks_search_sums_fn(const float *const *x, const float *const *y, int count, double *to);
ks_search_sums_fn ks_search_products_4, ks_search_products_1, ks_search_distances_4, ks_search_distances_1;
/* Of y[j] with itself. */
ks_search_sums_fn ks_search_squares;

#endif
