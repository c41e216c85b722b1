/* map of one datatype of integers, T, computed in W, an unsigned type that is at least as wide as T and as int; LOOPS_NAME(x) gives
 * functions their names. Included by integers.c once per datatype: no include guard; T, W and IS_SIGNED end here. */

#if IS_SIGNED
#define NEGATIVE(x) ((x) < 0)
#else
#define NEGATIVE(x) false
#endif

static T LOOPS_NAME(power)(T base, T exponent)
{
    if (NEGATIVE(exponent)) {
        const bool odd = ((W)exponent & 1) != 0;
        return base == 1 ? 1 : base == (T)-1 ? (T)(odd ? base : 1) : 0;
    }
    W result = 1, square = (W)base;
    for (W left = (W)exponent; left; left >>= 1) {
        if (left & 1) result *= square;
        square *= square;
    }
    return (T)result;
}

#define EACH(expression)                                                                                               \
    for (size_t i = 0; i < count; i++) {                                                                               \
        const T x = in[i];                                                                                             \
        out[i] = (T)(expression);                                                                                      \
    }                                                                                                                  \
    break

KS_CLONES static void LOOPS_NAME(one)(const ks_map_work *work, const T *restrict in, T *restrict out, size_t count)
{
    const bool clamps = work->function == KS_MAP_CLAMP;
    const bool below = clamps && !isinf(work->a), above = clamps && !isinf(work->b);
    const T a = (T)(clamps && !below ? LEAST : (T)work->a), b = (T)(clamps && !above ? MOST : (T)work->b);
    switch (work->function) {
    case KS_MAP_ABS:
        EACH(NEGATIVE(x) ? (W)0 - (W)x : (W)x);
    case KS_MAP_NEG:
        EACH((W)0 - (W)x);
    case KS_MAP_SIGN:
        EACH((x > 0) - NEGATIVE(x));
    case KS_MAP_SQUARE:
        EACH((W)x * (W)x);
    case KS_MAP_RELU:
        EACH(NEGATIVE(x) ? 0 : x);
    case KS_MAP_CLAMP:
        EACH(x < a ? a : x > b ? b : x);
    case KS_MAP_LINEAR:
        EACH((W)a * (W)x + (W)b);
    case KS_MAP_NOT:
        EACH(~(W)x);
    default:
        EACH(x);
    }
}

#undef EACH
#define PAIRS(type, expression)                                                                                        \
    for (size_t i = 0; i < count; i++) {                                                                               \
        const T x = left[i], y = right[i];                                                                             \
        out[i] = (type)(expression);                                                                                   \
    }                                                                                                                  \
    break

KS_CLONES static void LOOPS_NAME(two)(const ks_map_work *work, const T *restrict left, const T *restrict right,
                                      T *restrict out, size_t count)
{
    const T a = (T)work->a;
    switch (work->function) {
    case KS_MAP_ADD:
        PAIRS(T, (W)x + (W)y);
    case KS_MAP_SUB:
        PAIRS(T, (W)x - (W)y);
    case KS_MAP_MUL:
        PAIRS(T, (W)x * (W)y);
    case KS_MAP_MIN:
        PAIRS(T, x < y ? x : y);
    case KS_MAP_MAX:
        PAIRS(T, x > y ? x : y);
    case KS_MAP_AND:
        PAIRS(T, x & y);
    case KS_MAP_OR:
        PAIRS(T, x | y);
    case KS_MAP_XOR:
        PAIRS(T, x ^ y);
    case KS_MAP_POW:
        PAIRS(T, LOOPS_NAME(power)(x, y));
    default:
        PAIRS(T, (W)a * (W)x + (W)y);
    }
}

KS_CLONES static void LOOPS_NAME(truth)(ks_map_function function, const T *restrict left, const T *restrict right,
                                        uint8_t *restrict out, size_t count)
{
    switch (function) {
    case KS_MAP_EQ:
        PAIRS(uint8_t, x == y);
    case KS_MAP_NE:
        PAIRS(uint8_t, x != y);
    case KS_MAP_LT:
        PAIRS(uint8_t, x < y);
    case KS_MAP_LE:
        PAIRS(uint8_t, x <= y);
    case KS_MAP_GT:
        PAIRS(uint8_t, x > y);
    default:
        PAIRS(uint8_t, x >= y);
    }
}

#undef PAIRS

KS_CLONES static void LOOPS_NAME(fma)(const T *restrict x, const T *restrict y, const T *restrict z, T *restrict out,
                                      size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = (T)((W)x[i] * (W)y[i] + (W)z[i]);
}

/* ks_map_apply_fn */
static void LOOPS_NAME(apply)(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    if (work->truth)
        LOOPS_NAME(truth)(work->function, in[0], in[1], out, count);
    else if (work->operands == 1)
        LOOPS_NAME(one)(work, in[0], out, count);
    else if (work->operands == 2)
        LOOPS_NAME(two)(work, in[0], in[1], out, count);
    else
        LOOPS_NAME(fma)(in[0], in[1], in[2], out, count);
}

#undef NEGATIVE
#undef T
#undef W
#undef IS_SIGNED
#undef LEAST
#undef MOST
#undef LOOPS_NAME
