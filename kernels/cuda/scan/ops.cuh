/* What is scanned: a functor per operation, over a source of elements.
 *
 * A source has the type of elements that are read and of those that are written (reads and writes call with a pointer to one), and `Slot`, a
 * number in shared memory and in registers: get and put. An operation has
 *
 *   none(), join(a, b)             of States, a in front of b
 *   total(x)                       of SCAN_RUN slots, of which the missing ones are absent(), a Slot that changes nothing
 *   finish(x, before, exclusive)   makes them results
 *
 * or, where elements cost so much that it does not matter to get them one by one (SERIAL), total() and finish() of n slots in shared memory.
 *
 * Floats are added in leaves of SCAN_LEAF in FP32, and what is in front of a leaf is FP64: the error does not grow with the length. */
#ifndef KS_SCAN_OPS_CUH
#define KS_SCAN_OPS_CUH

#include "cuda/common/warp.cuh"
#include "cuda/scan/shape.cuh"

#include <float.h>
#include <type_traits>

enum { SCAN_LEAF = 5 };
static_assert((int)SCAN_RUN % (int)SCAN_LEAF == 0, "whole leaves");

/* --- sources --------------------------------------------------------------------------------------------------------- */

template <class T>
struct scan_floats {
    typedef T Element; /* read and written */
    typedef typename ks_element<T>::math Slot;
    typedef double Trunk;
    static constexpr bool narrow = sizeof(T) == 2;
    template <class Visit>
    static __device__ __forceinline__ void reads(const scan_rule &, Visit visit)
    {
        visit((T *)nullptr);
    }
    template <class Visit>
    static __device__ __forceinline__ void writes(const scan_rule &, Visit visit)
    {
        visit((T *)nullptr);
    }
    static __device__ __forceinline__ Slot get(T x, const scan_rule &rule)
    {
        return rule.negated ? -ks_math(x) : ks_math(x);
    }
    template <class F>
    static __device__ __forceinline__ F put(Slot x, const scan_rule &rule)
    {
        return ks_round<T, Slot>(rule.negated ? -x : x);
    }
};

/* Calls visit with a pointer to unsigned integers of an element's bytes. */
template <class Visit>
__device__ __forceinline__ void scan_visit_integers(int bytes, Visit visit)
{
    switch (bytes) {
    case 1:
        visit((uint8_t *)nullptr);
        break;
    case 2:
        visit((uint16_t *)nullptr);
        break;
    case 4:
        visit((uint32_t *)nullptr);
        break;
    default:
        visit((uint64_t *)nullptr);
    }
}

/* Integers as 64 bits that wrap. */
struct scan_integers {
    typedef uint64_t Slot, Trunk;
    static constexpr bool narrow = false;
    template <class Visit>
    static __device__ __forceinline__ void reads(const scan_rule &rule, Visit visit)
    {
        scan_visit_integers(rule.bytes, visit);
    }
    template <class Visit>
    static __device__ __forceinline__ void writes(const scan_rule &, Visit visit)
    {
        visit((uint64_t *)nullptr);
    }
    template <class E>
    static __device__ __forceinline__ Slot get(E x, const scan_rule &rule)
    {
        return ((uint64_t)x ^ rule.sign) - rule.sign;
    }
    template <class F>
    static __device__ __forceinline__ F put(Slot x, const scan_rule &)
    {
        return x;
    }
};

/* Integers as FP64. */
struct scan_numbers {
    typedef double Slot, Trunk;
    static constexpr bool narrow = false;
    template <class Visit>
    static __device__ __forceinline__ void reads(const scan_rule &rule, Visit visit)
    {
        scan_visit_integers(rule.bytes, visit);
    }
    template <class Visit>
    static __device__ __forceinline__ void writes(const scan_rule &, Visit visit)
    {
        visit((double *)nullptr);
    }
    template <class E>
    static __device__ __forceinline__ Slot get(E x, const scan_rule &rule)
    {
        const uint64_t wide = scan_integers::get(x, rule);
        return rule.sign ? (double)(int64_t)wide : (double)wide;
    }
    template <class F>
    static __device__ __forceinline__ F put(Slot x, const scan_rule &)
    {
        return x;
    }
};

/* Integers as unsigned ones in the order that is asked for. WIDE: of 8 bytes; else of up to 4. */
template <bool WIDE>
struct scan_ordered {
    typedef std::conditional_t<WIDE, uint64_t, uint32_t> Slot;
    template <class Visit>
    static __device__ __forceinline__ void reads(const scan_rule &rule, Visit visit)
    {
        if constexpr (WIDE)
            visit((uint64_t *)nullptr);
        else if (rule.bytes == 1)
            visit((uint8_t *)nullptr);
        else if (rule.bytes == 2)
            visit((uint16_t *)nullptr);
        else
            visit((uint32_t *)nullptr);
    }
    template <class Visit>
    static __device__ __forceinline__ void writes(const scan_rule &rule, Visit visit)
    {
        reads(rule, visit);
    }
    template <class E>
    static __device__ __forceinline__ Slot get(E x, const scan_rule &rule)
    {
        return (E)(x ^ (E)rule.flip);
    }
    template <class F>
    static __device__ __forceinline__ F put(Slot x, const scan_rule &rule)
    {
        return (F)(x ^ (Slot)rule.flip);
    }
};

/* --- sum, prod ------------------------------------------------------------------------------------------------------- */

template <class S>
struct scan_sum {
    typedef S Source;
    typedef typename S::Slot Slot;
    typedef typename S::Trunk State;
    static constexpr bool SERIAL = false;
    static __device__ __forceinline__ Slot absent()
    {
        return 0;
    }
    static __device__ __forceinline__ State none()
    {
        return 0;
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        return a + b;
    }
    /* The same sums as those of finish(). */
    static __device__ __forceinline__ State total(const Slot (&x)[SCAN_RUN])
    {
        State sum = 0;
#pragma unroll
        for (int leaf = 0; leaf < SCAN_RUN; leaf += SCAN_LEAF) {
            Slot part = x[leaf];
#pragma unroll
            for (int i = leaf + 1; i < leaf + SCAN_LEAF; i++) part += x[i];
            sum += (State)part;
        }
        return sum;
    }
    static __device__ __forceinline__ void finish(Slot (&x)[SCAN_RUN], State before, bool exclusive)
    {
#pragma unroll
        for (int leaf = 0; leaf < SCAN_RUN; leaf += SCAN_LEAF) {
            const Slot rounded = (Slot)before;
            Slot last = 0;
#pragma unroll
            for (int i = leaf; i < leaf + SCAN_LEAF; i++) {
                const Slot mine = i == leaf ? x[i] : last + x[i], part = exclusive ? last : mine;
                x[i] = S::narrow ? rounded + part : (Slot)(before + (State)part);
                last = mine;
            }
            before += (State)last;
        }
    }
};

template <class S>
struct scan_prod {
    typedef S Source;
    typedef typename S::Slot Slot;
    typedef typename S::Trunk State;
    static constexpr bool SERIAL = false;
    static __device__ __forceinline__ Slot absent()
    {
        return 1;
    }
    static __device__ __forceinline__ State none()
    {
        return 1;
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        return a * b;
    }
    static __device__ __forceinline__ State total(const Slot (&x)[SCAN_RUN])
    {
        State product = (State)x[0];
#pragma unroll
        for (int i = 1; i < SCAN_RUN; i++) product *= (State)x[i];
        return product;
    }
    static __device__ __forceinline__ void finish(Slot (&x)[SCAN_RUN], State before, bool exclusive)
    {
#pragma unroll
        for (int i = 0; i < SCAN_RUN; i++) {
            const State behind = before * (State)x[i];
            x[i] = (Slot)(exclusive ? before : behind);
            before = behind;
        }
    }
};

/* --- max; min of what is negated or flipped -------------------------------------------------------------------------- */

/* The earlier one of equals, and NaN once there is one. */
__device__ __forceinline__ float scan_greater(float a, float b)
{
    return !(b <= a) && a == a ? b : a;
}
__device__ __forceinline__ double scan_greater(double a, double b)
{
    return !(b <= a) && a == a ? b : a;
}
__device__ __forceinline__ uint32_t scan_greater(uint32_t a, uint32_t b)
{
    return b > a ? b : a;
}
__device__ __forceinline__ uint64_t scan_greater(uint64_t a, uint64_t b)
{
    return b > a ? b : a;
}

template <class S>
struct scan_extreme {
    typedef S Source;
    typedef typename S::Slot Slot, State;
    static constexpr bool SERIAL = false;
    static __device__ __forceinline__ Slot absent()
    {
        if constexpr (std::is_floating_point_v<Slot>)
            return -(Slot)INFINITY;
        else
            return 0;
    }
    static __device__ __forceinline__ State none()
    {
        return absent();
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        return scan_greater(a, b);
    }
    static __device__ __forceinline__ State total(const Slot (&x)[SCAN_RUN])
    {
        State most = x[0];
#pragma unroll
        for (int i = 1; i < SCAN_RUN; i++) most = scan_greater(most, x[i]);
        return most;
    }
    static __device__ __forceinline__ void finish(Slot (&x)[SCAN_RUN], State before, bool exclusive)
    {
#pragma unroll
        for (int i = 0; i < SCAN_RUN; i++) {
            const State behind = scan_greater(before, x[i]);
            x[i] = exclusive ? before : behind;
            before = behind;
        }
    }
};

/* --- logsumexp ------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float scan_exp(float x)
{
    return ks_exp2_quick(x * 1.44269504f);
}
__device__ __forceinline__ double scan_exp(double x)
{
    return exp(x);
}

/* The logarithm of a sum of floats, as exact as FP64 where it is large: whole powers of 2, and the rest in FP32. */
__device__ __forceinline__ double scan_log(double sum, float)
{
    const float x = (float)sum;
    if (!(x >= FLT_MIN && x <= FLT_MAX)) return logf(x);
    const int power = (int)(__float_as_uint(x) >> 23) - 127;
    return power * 0.69314718055994531 + (double)logf(__uint_as_float(__float_as_uint(x) - ((uint32_t)power << 23)));
}
__device__ __forceinline__ double scan_log(double sum, double)
{
    return log(sum);
}

template <class Slot>
struct scan_exponentials {
    Slot reference; /* finite: inf - inf never happens */
    double sum;     /* of e^(x - reference), or as scan_logsumexp_floats has it */
};

/* The reference follows an element that is ahead of it by more than AHEAD: so a sum is rarely scaled again, and each time by so little that
 * the roundings of the weights fade. */
template <class S>
struct scan_logsumexp {
    typedef S Source;
    typedef typename S::Slot Slot;
    typedef scan_exponentials<Slot> State;
    static constexpr bool SERIAL = true;
    static constexpr Slot LARGEST = sizeof(Slot) == 4 ? (Slot)FLT_MAX : (Slot)DBL_MAX, AHEAD = 2;
    static __device__ __forceinline__ State none()
    {
        return {-LARGEST, 0};
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        const double gap = (double)a.reference - (double)b.reference, weight = exp(gap >= 0 ? -gap : gap);
        return {gap >= 0 ? a.reference : b.reference, gap >= 0 ? a.sum + b.sum * weight : a.sum * weight + b.sum};
    }
    static __device__ __forceinline__ void take(State &s, Slot x)
    {
        if (x > s.reference + AHEAD) {
            const Slot next = x < LARGEST ? x : LARGEST;
            s.sum *= (double)scan_exp(s.reference - next);
            s.reference = next;
        }
        s.sum += (double)scan_exp(x - s.reference);
    }
    static __device__ __forceinline__ State total(const Slot *at, int step, int n)
    {
        State s = none();
#pragma unroll 1
        for (int i = 0; i < n; i++) take(s, at[i * step]);
        return s;
    }
    static __device__ __forceinline__ void finish(Slot *at, int step, int n, State before, bool exclusive)
    {
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            const State shown = before;
            take(before, at[i * step]);
            const State s = exclusive ? shown : before;
            at[i * step] = (Slot)((double)s.reference + scan_log(s.sum, (Slot)0));
        }
    }
};

/* The same of floats as powers of 4, which are scaled without a rounding: the reference is the largest element, and `sum` one of
 * 4^(x log2(e) / 2 - exponent of the reference), which is an integer. So a join costs no exponential, and no error grows with their number.
 * Beside a reference of FAR and more what else there is does not show, and its exponent is FAR's: sums may be 0 or infinite then. */
template <class S>
struct scan_logsumexp_floats {
    typedef S Source;
    typedef float Slot;
    typedef scan_exponentials<float> State;
    static constexpr bool SERIAL = false;
    static constexpr float FAR = 1 << 30; /* from which on a last bit is 64 and more */
    static __device__ __forceinline__ Slot absent()
    {
        return -INFINITY;
    }
    static __device__ __forceinline__ State none()
    {
        return {-INFINITY, 0};
    }
    static __device__ __forceinline__ float exponent(float reference)
    {
        return rintf(fminf(fmaxf(reference, -FAR), FAR) * 0.721347511f);
    }
    /* 4^(from - to), from <= to; what is below FP32 is 0. Put together from bits, so exact. */
    static __device__ __forceinline__ float weight(float from, float to)
    {
        const float power =
            fmaxf(2 * (from - to), -127.0f) + 12582912.0f; /* 1.5 x 2^23: the integer is the last bits */
        return __uint_as_float((__float_as_uint(power) << 23) + 0x3F800000u);
    }
    /* log2(e) / 2 as two floats: the distance of a large x is as exact as that of a small one. */
    static __device__ __forceinline__ float exponential(float x, float exponent)
    {
        return ks_exp2_quick(2 * fmaf(x, 9.62981517e-09f, fmaf(x, 0.721347511f, -exponent)));
    }
    /* The powers of 2 are whole or half ones beside the exponent, so there is one rounding where the result is large. */
    static __device__ __forceinline__ float logarithm(float reference, float exponent, float sum)
    {
        if (!(sum <= FLT_MAX)) return sum == sum ? reference : sum;
        if (!(fabsf(reference) < FAR)) return reference;
        const int power = (int)(__float_as_uint(sum) >> 23) - 127;
        const float rest = logf(__uint_as_float(__float_as_uint(sum) - ((uint32_t)power << 23)));
        const float powers = fmaf(0.5f, (float)power, exponent);
        return fmaf(powers, 1.38629436f, fmaf(powers, -3.80930842e-09f, rest));
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        const float of_a = exponent(a.reference), of_b = exponent(b.reference), to = fmaxf(of_a, of_b);
        return {fmaxf(a.reference, b.reference), a.sum * (double)weight(of_a, to) + b.sum * (double)weight(of_b, to)};
    }
    static __device__ __forceinline__ State total(const Slot (&x)[SCAN_RUN])
    {
        State s = {x[0], 0};
#pragma unroll
        for (int i = 1; i < SCAN_RUN; i++) s.reference = fmaxf(s.reference, x[i]);
        s.reference = fmaxf(s.reference, -INFINITY); /* of nothing but NaN, too */
        const float of_all = exponent(s.reference);
#pragma unroll
        for (int leaf = 0; leaf < SCAN_RUN; leaf += SCAN_LEAF) {
            float part = 0;
#pragma unroll
            for (int i = leaf; i < leaf + SCAN_LEAF; i++) part += exponential(x[i], of_all);
            s.sum += (double)part;
        }
        return s;
    }
    /* Here the reference is that of the elements so far: of a chain that rises steeply the first ones would be nothing beside the last. */
    static __device__ __forceinline__ void finish(Slot (&x)[SCAN_RUN], State before, bool exclusive)
    {
        float reference = before.reference, now = exponent(reference);
#pragma unroll
        for (int leaf = 0; leaf < SCAN_RUN; leaf += SCAN_LEAF) {
            const float in_front = now;
            float front = (float)before.sum, part = 0;
#pragma unroll
            for (int i = leaf; i < leaf + SCAN_LEAF; i++) {
                const float last_reference = reference, last = now, last_sum = front + part;
                reference = fmaxf(reference, x[i]);
                now = exponent(reference);
                const float scale = weight(last, now);
                front *= scale;
                part = fmaf(part, scale, exponential(x[i], now));
                x[i] = logarithm(exclusive ? last_reference : reference, exclusive ? last : now,
                                 exclusive ? last_sum : front + part);
            }
            before.sum = before.sum * (double)weight(in_front, now) + (double)part;
        }
    }
};

/* What plan.cu counts on: rows.cuh takes floats, whose states have room in a message beside its mark; columns.cuh what is in registers. */
template <class Op>
constexpr bool scan_has_columns()
{
    return !Op::SERIAL;
}
template <class Op>
constexpr bool scan_has_rows()
{
    return !Op::SERIAL && std::is_floating_point_v<typename Op::Slot>;
}

/* --- states between threads ------------------------------------------------------------------------------------------ */

/* Of the lane `distance` below; a lane without one keeps its own. */
__device__ __forceinline__ float scan_from_below(float x, int distance)
{
    return __shfl_up_sync(0xFFFFFFFFu, x, distance);
}
__device__ __forceinline__ double scan_from_below(double x, int distance)
{
    return __shfl_up_sync(0xFFFFFFFFu, x, distance);
}
__device__ __forceinline__ uint32_t scan_from_below(uint32_t x, int distance)
{
    return __shfl_up_sync(0xFFFFFFFFu, x, distance);
}
__device__ __forceinline__ uint64_t scan_from_below(uint64_t x, int distance)
{
    return __shfl_up_sync(0xFFFFFFFFu, (unsigned long long)x, distance);
}
template <class Slot>
__device__ __forceinline__ scan_exponentials<Slot> scan_from_below(const scan_exponentials<Slot> &x, int distance)
{
    return {scan_from_below(x.reference, distance), scan_from_below(x.sum, distance)};
}

/* Of that lane. */
template <class State>
__device__ __forceinline__ State scan_from_lane(const State &x, int lane)
{
    return __shfl_sync(0xFFFFFFFFu, x, lane);
}
template <class Slot>
__device__ __forceinline__ scan_exponentials<Slot> scan_from_lane(const scan_exponentials<Slot> &x, int lane)
{
    return {scan_from_lane(x.reference, lane), scan_from_lane(x.sum, lane)};
}

/* The state of each run together with those in front of it, of `runs` that lie `columns` lanes apart; the lane's is number `run`. */
template <class Op>
__device__ __forceinline__ typename Op::State scan_runs(typename Op::State mine, int run, int runs, int columns)
{
#pragma unroll 1
    for (int distance = 1; distance < runs; distance *= 2) {
        const typename Op::State before = scan_from_below(mine, distance * columns);
        if (run >= distance) mine = Op::join(before, mine);
    }
    return mine;
}

#endif
