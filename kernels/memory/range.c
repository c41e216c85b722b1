/* Areas of a reserved range, first fit by address.
 *
 * Owns      a bit for each unit, and for each page what is free at its start, at its end and at most within it: a search looks at pages, and
 *           at the units of one page alone.
 * Interface range.h
 * Threads   the caller's lock
 * Limits    a bit for each unit of a page that is shared; the counts of a page are made anew from its bits whenever a part of it is taken or given. */
#include "memory/range.h"

#include <assert.h>
#include <stdlib.h>

typedef struct range_page {
    uint64_t *used; /* a bit for each unit; NULL: the page is free, or a single area has all of it */
    uint32_t units;
    uint32_t before, behind, run; /* free units: from its start, to its end, the longest run */
    bool mapped, written;         /* written: an area was there since it was mapped */
} range_page;

struct ks_range {
    size_t page_bytes, units; /* of a page */
    size_t pages, mapped, mapped_max;
    ks_range_map_fn *map;
    ks_range_unmap_fn *unmap;
    void *context;
    range_page page[];
};

static size_t pages_of(uint64_t bytes, size_t page_bytes)
{
    return (size_t)((bytes + page_bytes - 1) / page_bytes);
}

uint64_t ks_range_addresses(uint64_t limit_bytes, size_t page_bytes)
{
    return 2 * (uint64_t)pages_of(limit_bytes, page_bytes) * page_bytes;
}

ks_range *ks_range_open(uint64_t addresses, uint64_t limit_bytes, size_t page_bytes, ks_range_map_fn *map,
                        ks_range_unmap_fn *unmap, void *context)
{
    const size_t pages = (size_t)(addresses / page_bytes);
    ks_range *range = calloc(1, sizeof *range + pages * sizeof(range_page));
    if (!range) return NULL;
    range->page_bytes = page_bytes;
    range->units = page_bytes / KS_ALIGNMENT;
    range->pages = pages;
    range->mapped_max = pages_of(limit_bytes, page_bytes);
    range->map = map;
    range->unmap = unmap;
    range->context = context;
    for (size_t i = 0; i < pages; i++) {
        range_page *page = &range->page[i];
        page->units = page->before = page->behind = page->run = (uint32_t)range->units;
    }
    return range;
}

void ks_range_close(ks_range **range)
{
    ks_range *closing = *range;
    *range = NULL;
    if (!closing) return;
    for (size_t i = 0; i < closing->pages; i++) {
        free(closing->page[i].used);
        if (closing->page[i].mapped) closing->unmap(closing->context, i, 1);
    }
    free(closing);
}

/* --- the units of a page ------------------------------------------------------------------------------------------------- */

static bool is_used(const range_page *page, size_t unit)
{
    return page->used[unit / 64] >> unit % 64 & 1;
}

/* The first unit from `at` on that is used, or is free; page->units: none. */
static size_t next_unit(const range_page *page, size_t at, bool used)
{
    while (at < page->units) {
        const uint64_t word = (used ? page->used[at / 64] : ~page->used[at / 64]) >> at % 64;
        if (word) return at + (size_t)__builtin_ctzll(word);
        at = (at / 64 + 1) * 64;
    }
    return page->units;
}

/* Makes the counts anew. A page that is free from end to end needs no bits; one that is used by several areas will when they go. */
static void count_units(range_page *page)
{
    size_t run = 0, behind = 0;
    for (size_t at = next_unit(page, 0, false); at < page->units;) {
        const size_t end = next_unit(page, at, true);
        if (end - at > run) run = end - at;
        behind = end == page->units ? end - at : 0;
        at = next_unit(page, end, false);
    }
    page->before = (uint32_t)next_unit(page, 0, true);
    page->behind = (uint32_t)behind;
    page->run = (uint32_t)run;
    if (run == page->units) {
        free(page->used);
        page->used = NULL;
    }
}

/* false: no memory for its bits. */
static bool need_bits(range_page *page)
{
    if (page->used) return true;
    page->used = calloc(page->units / 64, sizeof(uint64_t));
    return page->used != NULL;
}

static void set_units(range_page *page, size_t from, size_t to, bool used)
{
    for (size_t at = from; at < to; at++) {
        if (at % 64 == 0 && to - at >= 64) {
            page->used[at / 64] = used ? ~(uint64_t)0 : 0;
            at += 63;
        } else {
            assert(is_used(page, at) != used);
            page->used[at / 64] ^= (uint64_t)1 << at % 64;
        }
    }
    count_units(page);
}

static void set_whole(range_page *page, bool used)
{
    assert(!page->used);
    page->before = page->behind = page->run = used ? 0 : page->units;
}

/* Where in the page that many free units begin. */
static size_t find_run(const range_page *page, size_t units)
{
    if (!page->used) return 0;
    for (size_t at = next_unit(page, 0, false);;) {
        const size_t end = next_unit(page, at, true);
        if (end - at >= units) return at;
        at = next_unit(page, end, false);
    }
}

/* --- areas ------------------------------------------------------------------------------------------------------------------- */

/* The first unit of the first run of that many free ones; SIZE_MAX: there is none. */
static size_t find(const ks_range *range, size_t units)
{
    size_t start = 0, run = 0;
    for (size_t i = 0; i < range->pages; i++) {
        const range_page *page = &range->page[i];
        if (run == 0) start = i * range->units;
        if (run + page->before >= units) return start;
        if (page->run >= units) return i * range->units + find_run(page, units);
        run = page->before == page->units ? run + range->units : page->behind;
        if (page->before != page->units) start = (i + 1) * range->units - page->behind;
    }
    return SIZE_MAX;
}

static size_t units_of(size_t bytes)
{
    return bytes == 0 ? 1 : (bytes - 1) / KS_ALIGNMENT + 1;
}

/* The part of page i that the units from `at` on cover. */
typedef struct unit_part {
    size_t from, to;
} unit_part;
static unit_part part_of(const ks_range *range, size_t i, size_t at, size_t units)
{
    const size_t start = i * range->units, end = at + units;
    return (unit_part){at > start ? at - start : 0, end < start + range->units ? end - start : range->units};
}

static bool is_whole(const ks_range *range, unit_part part)
{
    return part.from == 0 && part.to == range->units;
}

/* The first and the last page may be shared, and need their bits. A page between them has none. */
static bool need_all_bits(ks_range *range, size_t at, size_t units)
{
    const size_t ends[] = {at / range->units, (at + units - 1) / range->units};
    for (int i = 0; i < 2; i++)
        if (!is_whole(range, part_of(range, ends[i], at, units)) && !need_bits(&range->page[ends[i]])) return false;
    return true;
}

static void mark(ks_range *range, size_t at, size_t units, bool used)
{
    for (size_t i = at / range->units; i <= (at + units - 1) / range->units; i++) {
        const unit_part part = part_of(range, i, at, units);
        if (is_whole(range, part))
            set_whole(&range->page[i], used);
        else
            set_units(&range->page[i], part.from, part.to, used);
    }
}

/* Drops bits that were got for nothing. */
static void drop_bits(ks_range *range, size_t at, size_t units)
{
    const size_t ends[] = {at / range->units, (at + units - 1) / range->units};
    for (int i = 0; i < 2; i++)
        if (range->page[ends[i]].used) count_units(&range->page[ends[i]]);
}

static size_t count_unmapped(const ks_range *range, size_t first, size_t last)
{
    size_t count = 0;
    for (size_t i = first; i <= last; i++) count += !range->page[i].mapped;
    return count;
}

static bool map_run(ks_range *range, size_t first, size_t end)
{
    if (!range->map(range->context, first, end - first)) return false;
    for (size_t i = first; i < end; i++) {
        range->page[i].mapped = true;
        range->page[i].written = false;
    }
    range->mapped += end - first;
    return true;
}

/* Maps what is not. Pages that were mapped for an area that then finds no memory stay kept. */
static bool map_all(ks_range *range, size_t first, size_t last)
{
    for (size_t i = first; i <= last; i++) {
        size_t end = i;
        while (end <= last && !range->page[end].mapped) end++;
        if (end > i && !map_run(range, i, end)) return false;
        i = end;
    }
    return true;
}

static bool is_kept(const range_page *page)
{
    return page->mapped && page->run == page->units;
}

static void unmap_run(ks_range *range, size_t first, size_t end)
{
    range->unmap(range->context, first, end - first);
    for (size_t i = first; i < end; i++) range->page[i].mapped = false;
    range->mapped -= end - first;
}

/* Room for more pages, of those that are kept elsewhere. */
static bool make_room(ks_range *range, size_t first, size_t last)
{
    const size_t more = count_unmapped(range, first, last);
    for (size_t i = range->pages; i-- > 0 && range->mapped + more > range->mapped_max;) {
        if ((i < first || i > last) && is_kept(&range->page[i])) unmap_run(range, i, i + 1);
    }
    return range->mapped + more <= range->mapped_max;
}

bool ks_range_take(ks_range *range, size_t bytes, uint64_t *at, bool *fresh)
{
    const size_t units = units_of(bytes), start = find(range, units);
    if (start == SIZE_MAX) return false;
    const size_t first = start / range->units, last = (start + units - 1) / range->units;
    if (!make_room(range, first, last) || !map_all(range, first, last) || !need_all_bits(range, start, units)) {
        drop_bits(range, start, units);
        return false;
    }
    mark(range, start, units, true);
    *fresh = true;
    for (size_t i = first; i <= last; i++) {
        *fresh = *fresh && !range->page[i].written;
        range->page[i].written = true;
    }
    *at = (uint64_t)start * KS_ALIGNMENT;
    return true;
}

void ks_range_give(ks_range *range, uint64_t at, size_t bytes)
{
    mark(range, (size_t)(at / KS_ALIGNMENT), units_of(bytes), false);
}

bool ks_range_trim(ks_range *range, size_t pages_kept, size_t most)
{
    for (size_t i = 0; i < range->pages; i++) {
        if (!is_kept(&range->page[i])) continue;
        if (pages_kept > 0) {
            pages_kept--;
            continue;
        }
        size_t end = i;
        while (end < range->pages && end - i < most && is_kept(&range->page[end])) end++;
        unmap_run(range, i, end);
        return true;
    }
    return false;
}

uint64_t ks_range_mapped_bytes(const ks_range *range)
{
    return (uint64_t)range->mapped * range->page_bytes;
}
