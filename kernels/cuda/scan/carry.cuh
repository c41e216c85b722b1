/* What is in front of a tile, where the tiles of a chain are worked on at once.
 *
 * Each tile leaves its sum in the chain's table as soon as it has it, and waits for no other tile to do so. The last tile of SCAN_RADIX joins
 * those of its group, the last tile of SCAN_RADIX groups the sums of these. A tile joins what is in front of it from whole groups of groups,
 * whole groups and tiles, always the same ones in the same order: no bit follows from when they came.
 *
 * Waits    a tile waits for tiles that were begun before it, by CTAs that run; so it ends, however many CTAs run at a time.
 * Flags    say that an entry is there, and are zero again when the launch ends: the last tile of a group clears the flags that only its group
 *          reads, and so on upwards.
 * Threads  a warp. Its lanes read the entries of each column side by side, those of a lane one behind the other. A column's owner is the last of
 *          its lanes. */
#ifndef KS_SCAN_CARRY_CUH
#define KS_SCAN_CARRY_CUH

#include "cuda/scan/ops.cuh"

/* A chain's entries. Level 0: of tiles; 1: of groups; 2: of groups of groups. */
template <class State>
struct scan_table {
    State *states;
    uint64_t *flags;
    uint32_t *done; /* of each group, each group of groups, and of the latter */
    int32_t tiles, columns;

    __device__ __forceinline__ scan_table(const scan_shape &s, const ks_site &site, int64_t chain)
        : tiles(s.tiles), columns(s.columns)
    {
        uint32_t *const words = ks_counters(site) + SCAN_HEAD_WORDS;
        const int32_t entries = scan_entries(tiles);
        states = (State *)ks_workspace(site) + chain * entries * columns;
        flags = (uint64_t *)(void *)words + chain * entries;
        done = words + 2 * s.chains * entries + chain * (entries - tiles + 1);
    }
    __device__ __forceinline__ int32_t entry(int level, int32_t index) const
    {
        return (level == 0 ? 0 : level == 1 ? tiles : tiles + scan_groups(tiles)) + index;
    }
};

/* A lane of the warp that looks back. */
struct scan_lane {
    int column, run, runs; /* run: which of the lanes of its column */
    bool owner;
    __device__ __forceinline__ scan_lane(const scan_shape &s)
    {
        const int lane_id = threadIdx.x % KS_WARP;
        runs = s.runs;
        run = lane_id / s.columns;
        column = lane_id - run * s.columns;
        owner = run == runs - 1;
    }
};

template <class State>
__device__ __forceinline__ State scan_read(const State *at)
{
    State state;
    if constexpr (sizeof(State) == 16)
        *(uint4 *)&state = __ldcg((const uint4 *)at);
    else if constexpr (sizeof(State) == 8)
        *(uint2 *)&state = __ldcg((const uint2 *)at);
    else
        *(uint32_t *)&state = __ldcg((const uint32_t *)at);
    return state;
}

/* Leaves the owners' states at an entry. */
template <class State>
__device__ __forceinline__ void scan_publish(const scan_table<State> &table, const scan_lane &lane, int32_t entry,
                                             const State &state)
{
    if (lane.owner) {
        table.states[(int64_t)entry * table.columns + lane.column] = state;
        __threadfence();
    }
    __syncwarp();
    if (threadIdx.x % KS_WARP == 0) ks_write_relaxed(table.flags + entry, 1);
}

/* The join of `count` entries, at most SCAN_RADIX, once they are there: the owner's is whole. */
template <class Op>
__device__ __forceinline__ typename Op::State scan_fold(const scan_table<typename Op::State> &table,
                                                        const scan_lane &lane, int32_t first, int32_t count)
{
    typedef typename Op::State State;
    const int lane_id = threadIdx.x % KS_WARP;
    if (count == 0) return Op::none();
    while (__any_sync(0xFFFFFFFFu, lane_id < count && !ks_read_relaxed(table.flags + first + lane_id))) {
    }
    __threadfence();
    __syncwarp();
    const int share = (count + lane.runs - 1) / lane.runs;
    const int begin = lane.run * share, end = lane.run < lane.runs ? min(begin + share, count) : 0;
    const State *const at = table.states + (int64_t)first * table.columns + lane.column;
    constexpr int AHEAD = Op::SERIAL ? 1 : 2; /* more spills */
    State sum = Op::none();
#pragma unroll AHEAD
    for (int i = begin; i < end; i++) sum = Op::join(sum, scan_read(at + (int64_t)i * table.columns));
    return scan_runs<Op>(sum, lane.run, lane.runs, table.columns);
}

/* One more of `members` of a group is done. The last one of them clears the flags that the members read, whose first one that is. */
__device__ __forceinline__ bool scan_completes(uint32_t *done, int32_t members, uint64_t *flags)
{
    const int lane_id = threadIdx.x % KS_WARP;
    __syncwarp();
    bool last = false;
    if (lane_id == 0) {
        __threadfence();
        last = atomicAdd(done, 1u) == (uint32_t)members - 1;
        if (last) *done = 0;
    }
    if (!__any_sync(0xFFFFFFFFu, last)) return false;
    if (lane_id < members) flags[lane_id] = 0;
    return true;
}

template <class State>
__device__ __forceinline__ void scan_done(const scan_table<State> &table, int32_t tile)
{
    const int32_t tiles = table.tiles, groups = scan_groups(tiles), tops = scan_groups(groups);
    const int32_t group = tile / SCAN_RADIX, top = group / SCAN_RADIX;
    if (scan_completes(table.done + group, min(tiles - group * SCAN_RADIX, (int)SCAN_RADIX),
                       table.flags + group * SCAN_RADIX) &&
        scan_completes(table.done + groups + top, min(groups - top * SCAN_RADIX, (int)SCAN_RADIX),
                       table.flags + table.entry(1, top * SCAN_RADIX)))
        scan_completes(table.done + groups + tops, tops, table.flags + table.entry(2, 0));
}

/* What is in front of tile number `tile` of the launch, whose own sum is `mine`; `start` is in front of the launch. States of owners. */
template <class Op>
__device__ __forceinline__ typename Op::State
scan_look_back(const scan_table<typename Op::State> &table, const scan_lane &lane, int32_t tile,
               const typename Op::State &mine, const typename Op::State &start)
{
    typedef typename Op::State State;
    const int32_t group = tile / SCAN_RADIX, top = group / SCAN_RADIX;
    const bool more = tile + 1 < table.tiles, ends_group = more && (tile + 1) % SCAN_RADIX == 0;
    if (more) scan_publish(table, lane, tile, mine);
    const State near = scan_fold<Op>(table, lane, group * SCAN_RADIX, tile % SCAN_RADIX);
    const State whole = Op::join(near, mine); /* of the group, where it ends here */
    if (ends_group) scan_publish(table, lane, table.entry(1, group), whole);
    const State middle = scan_fold<Op>(table, lane, table.entry(1, top * SCAN_RADIX), group % SCAN_RADIX);
    if (ends_group && (group + 1) % SCAN_RADIX == 0)
        scan_publish(table, lane, table.entry(2, top), Op::join(middle, whole));
    const State far = scan_fold<Op>(table, lane, table.entry(2, 0), top);
    scan_done(table, tile);
    return Op::join(Op::join(start, far), Op::join(middle, near));
}

#endif
