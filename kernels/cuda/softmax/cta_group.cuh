/* CTA groups: CTAs of a cooperative launch that work on one item together, an item after the other.
 *
 * Each CTA publishes its messages of an item and consumes those of all CTAs. A message is 16 bytes that are written at once:
 * the top bit of its second half says in which use of its slot it was written, and it is never all zero. A message has SLOTS =
 * 2 n slots, used in rotation. A CTA publishes an item's message after it has consumed all messages of n items before; so all
 * CTAs have consumed those of 2 n items before, which the new one overwrites. The slots are the launch's counters: zero before
 * it and after it. */
#ifndef KS_SOFTMAX_CTA_GROUP_CUH
#define KS_SOFTMAX_CTA_GROUP_CUH

#include "cuda/softmax/common.cuh"

enum { GROUP_MESSAGE = 4, GROUP_SLOTS = 2 }; /* words; of a message, where not said otherwise */

/* The sum's sign bit marks the use of the slot: it is masked and never taken by fabs(): of a NaN that has the sign set. */
static const uint64_t GROUP_SUM = UINT64_MAX >> 1;

/* Words: a ticket and, behind all tickets, the slots of each CTA group. messages: of a CTA; more: of all CTA groups, beside those. */
__host__ __device__ inline size_t softmax_cta_group_head(int grid)
{
    return ((size_t)grid + GROUP_MESSAGE - 1) / GROUP_MESSAGE * GROUP_MESSAGE;
}
__host__ __device__ inline size_t softmax_cta_group_counters(int grid, int messages, int slots = GROUP_SLOTS,
                                                             int more = 0)
{
    return softmax_cta_group_head(grid) +
           (size_t)slots * GROUP_MESSAGE * ((size_t)grid * (size_t)messages + (size_t)more);
}

template <int SLOTS>
struct softmax_cta_group_of {
    uint32_t *tickets;
    ks_message *slots; /* this CTA group's: [SLOTS][count] */
    int groups, index, size, rank, count;

    /* Lies in shared memory, for all threads of a CTA; opened by one. more: messages of the CTA group, beside those of its CTAs. */
    __device__ __forceinline__ void open(const ks_site &site, int ctas, int messages, int more = 0)
    {
        tickets = ks_counters(site);
        size = ctas;
        count = ctas * messages + more;
        groups = gridDim.x / size;
        index = blockIdx.x / size;
        rank = blockIdx.x - index * size;
        slots = (ks_message *)(tickets + softmax_cta_group_head(gridDim.x)) + (size_t)SLOTS * index * count;
        tickets += index;
    }

    /* round: 0, 1, 2 ...; i: of `count`. A pair (h, sum) has h != 0, or sum != 0; sum is not negative. */
    __device__ __forceinline__ void publish(uint32_t round, int i, double h, double sum) const
    {
        const uint64_t use = (uint64_t)(round / SLOTS & 1) << 63;
        ks_write_relaxed(&slots[round % SLOTS * count + i],
                         {(uint64_t)__double_as_longlong(h), ((uint64_t)__double_as_longlong(sum) & GROUP_SUM) | use});
    }

    __device__ __forceinline__ ks_message read(uint32_t round, int i) const
    {
        return ks_read_relaxed(&slots[round % SLOTS * count + i]);
    }

    /* r: as it was read before, and is read again while it is not this round's. */
    template <class M>
    __device__ __forceinline__ softmax_pair<M> consume(uint32_t round, int i, ks_message r) const
    {
        while ((r.first | r.second) == 0 || r.second >> 63 != (round / SLOTS & 1)) r = read(round, i);
        return {(M)__longlong_as_double((long long)r.first),
                (M)__longlong_as_double((long long)(r.second & GROUP_SUM))};
    }
    template <class M>
    __device__ __forceinline__ softmax_pair<M> consume(uint32_t round, int i) const
    {
        return consume<M>(round, i, read(round, i));
    }

    /* CTA groups of two CTAs and more draw their items, from the groups-th on, so that those of about the same time lie beside each other,
     * however long the launch is. One thread of a group does; the ticket behind the last item clears the counter, which is the word
     * of a ticket that no group has. */
    __device__ __forceinline__ uint32_t draw_item(uint32_t items) const
    {
        uint32_t *const drawn = tickets - index + gridDim.x - 1;
        const uint32_t ticket = atomicAdd(drawn, 1u);
        if (ticket + 1 == items) *drawn = 0;
        return groups + ticket;
    }

    /* Each CTA that has read its last messages draws a ticket, early, since the answer takes its time; one thread does... */
    __device__ __forceinline__ uint32_t draw(bool mine = threadIdx.x == 0) const
    {
        return mine ? atomicAdd(tickets, 1u) : 0;
    }

    /* ...and the CTA group's last CTA clears ticket and slots. drawn: in thread 0. */
    __device__ __forceinline__ void leave(uint32_t drawn) const
    {
        if (!__syncthreads_or(threadIdx.x == 0 && drawn == (uint32_t)size - 1)) return;
        const ks_message none = {0, 0};
        for (int i = threadIdx.x; i < SLOTS * count; i += blockDim.x) slots[i] = none;
        if (threadIdx.x == 0) *tickets = 0;
    }
};

typedef softmax_cta_group_of<GROUP_SLOTS> softmax_cta_group;

#endif
