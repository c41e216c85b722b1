/* A reserved range of addresses whose pages are mapped when they are needed: where areas lie in it, and which pages are mapped. It
 * never touches the memory itself: a backend maps and unmaps by its callbacks.
 *
 * Words    unit = KS_ALIGNMENT bytes; page = what is mapped at a time, 2 MiB or a multiple. A page is used while an area in it is taken, kept while
 *          none is and it stays mapped.
 * Limits   of pages mapped: what ks_range_open was given. There are twice as many addresses, so that holes between areas do not
 *          keep large ones out.
 * Threads  one at a time: the caller's lock. */
#ifndef KS_RANGE_H
#define KS_RANGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernserve/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

static const size_t KS_RANGE_PAGE_BYTES = 2 << 20;
enum { KS_RANGE_QUIET_TURNS = 10 }; /* looks of the owner, one a second, without a take: then nothing is kept */

typedef struct ks_range ks_range;

/* Makes pages usable (all of them or none; false: no memory), or gives them back. */
typedef bool ks_range_map_fn(void *context, size_t first_page, size_t pages);
typedef void ks_range_unmap_fn(void *context, size_t first_page, size_t pages);

/* The bytes of addresses that a range of that limit covers: to be reserved by the caller. */
uint64_t ks_range_addresses(uint64_t limit_bytes, size_t page_bytes);
/* addresses: what ks_range_addresses says, or fewer. NULL: no memory. */
ks_range *ks_range_open(uint64_t addresses, uint64_t limit_bytes, size_t page_bytes, ks_range_map_fn *map,
                        ks_range_unmap_fn *unmap, void *context);
void ks_range_close(ks_range **range); /* unmaps what is mapped */

/* An area of at least `bytes`, at the lowest address where it fits. *fresh: nothing was ever in its pages since they were mapped.
 * false: there is no room, or no memory. */
bool ks_range_take(ks_range *range, size_t bytes, uint64_t *at, bool *fresh);
void ks_range_give(ks_range *range, uint64_t at, size_t bytes);
/* Unmaps at most `most` pages that are kept, and leaves that many of them. false: there was none to unmap. */
bool ks_range_trim(ks_range *range, size_t pages_kept, size_t most);
uint64_t ks_range_mapped_bytes(const ks_range *range);

#ifdef __cplusplus
}
#endif
#endif
