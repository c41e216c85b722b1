/* Teams: CTAs of a cooperative launch that work on one item together, an item after the other.
 *
 * Each member posts its records of an item and reads those of all members. A record is 16 bytes that are written at once:
 * the top bit of its second half says in which use of its place it was written, and it is never all zero. A record has
 * TURNS = 2 n places in turn: who posts an item's has read those of n items before, and so all have read those of 2 n items
 * before, which it overwrites. The places are the launch's counters: zero before it and after it. */
#ifndef KS_SOFTMAX_TEAM_CUH
#define KS_SOFTMAX_TEAM_CUH

#include "cuda/softmax/common.cuh"

enum { TEAM_RECORD = 4, TEAM_PLACES = 2 }; /* words; of a record, where not said otherwise */

/* The sum's sign, which tells its uses apart, is masked and never taken by fabs(): of a NaN that has the sign set. */
static const uint64_t TEAM_SUM = UINT64_MAX >> 1;

/* Words: a ticket and, behind all tickets, the places of each team. records: of a member. */
__host__ __device__ inline size_t softmax_team_head(int grid)
{
    return ((size_t)grid + TEAM_RECORD - 1) / TEAM_RECORD * TEAM_RECORD;
}
__host__ __device__ inline size_t softmax_team_counters(int grid, int records, int turns = TEAM_PLACES)
{
    return softmax_team_head(grid) + (size_t)turns * TEAM_RECORD * (size_t)grid * (size_t)records;
}

template <int TURNS>
struct softmax_team_of {
    uint32_t *tickets;
    ks_record *places; /* this team's: [TURNS][count] */
    int teams, team, members, me, count;

    /* Lies in shared memory, for all threads of a CTA; opened by one. */
    __device__ __forceinline__ void open(const ks_site &site, int of, int records)
    {
        tickets = ks_counters(site);
        members = of;
        count = of * records;
        teams = gridDim.x / members;
        team = blockIdx.x / members;
        me = blockIdx.x - team * members;
        places = (ks_record *)(tickets + softmax_team_head(gridDim.x)) + (size_t)TURNS * team * count;
        tickets += team;
    }

    /* round: 0, 1, 2 ...; i: of `count`. A pair (h, sum) has h != 0, or sum != 0; sum is not negative. */
    __device__ __forceinline__ void post(uint32_t round, int i, double h, double sum) const
    {
        const uint64_t use = (uint64_t)(round / TURNS & 1) << 63;
        ks_write_relaxed(&places[round % TURNS * count + i],
                         {(uint64_t)__double_as_longlong(h), ((uint64_t)__double_as_longlong(sum) & TEAM_SUM) | use});
    }

    __device__ __forceinline__ ks_record read(uint32_t round, int i) const
    {
        return ks_read_relaxed(&places[round % TURNS * count + i]);
    }

    /* r: as it was read before, and is read again while it is not this round's. */
    template <class M>
    __device__ __forceinline__ softmax_pair<M> wait(uint32_t round, int i, ks_record r) const
    {
        while ((r.first | r.second) == 0 || r.second >> 63 != (round / TURNS & 1)) r = read(round, i);
        return {(M)__longlong_as_double((long long)r.first), (M)__longlong_as_double((long long)(r.second & TEAM_SUM))};
    }
    template <class M>
    __device__ __forceinline__ softmax_pair<M> wait(uint32_t round, int i) const
    {
        return wait<M>(round, i, read(round, i));
    }

    /* Each CTA that has read its last records draws a ticket, early, since the answer takes its time; one thread does... */
    __device__ __forceinline__ uint32_t draw(bool mine = threadIdx.x == 0) const
    {
        return mine ? atomicAdd(tickets, 1u) : 0;
    }

    /* ...and the team's last CTA clears ticket and places. drawn: in thread 0. */
    __device__ __forceinline__ void leave(uint32_t drawn) const
    {
        if (!__syncthreads_or(threadIdx.x == 0 && drawn == (uint32_t)members - 1)) return;
        const ks_record none = {0, 0};
        for (int i = threadIdx.x; i < TURNS * count; i += blockDim.x) places[i] = none;
        if (threadIdx.x == 0) *tickets = 0;
    }
};

typedef softmax_team_of<TEAM_PLACES> softmax_team;

#endif
