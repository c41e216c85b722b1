/* What every backend knows of map: its functions, how a resolved spec is computed, and the output's axes, merged. */
#ifndef KS_OPS_MAP_H
#define KS_OPS_MAP_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_MAP_OP, KS_MAP_A, KS_MAP_B, KS_MAP_OUT, KS_MAP_PARAMS };
enum { KS_MAP_OPERANDS = 3 };

/* What a function takes and gives.
 *   NUMBERS  every datatype but BOOL, in the datatype of its operands
 *   REAL     the same, but integers are computed as FP64 and give FP64
 *   ANY      every datatype
 *   TRUTH    every datatype; true or false
 *   BITS     integers, bit by bit, and BOOL */
typedef enum ks_map_kind { KS_MAP_NUMBERS, KS_MAP_REAL, KS_MAP_ANY, KS_MAP_TRUTH, KS_MAP_BITS } ks_map_kind;

/* X(NAME, "name", operands, kind, flops an element); x, y, z: the operands, a and b: the parameters.
 *
 *   sign        -1, 0 or 1                      square      x x
 *   reciprocal  1 / x                           rsqrt       1 / sqrt x
 *   round       to the nearest, halves to even  softplus    log(1 + e^x)
 *   elu         x > 0 ? x : a (e^x - 1)         leaky_relu  x < 0 ? a x : x
 *   clamp       a, where x < a; b, where x > b  linear      a x + b, rounded once
 *   axpy        a x + y, rounded once           fma         x y + z, rounded once
 *   where       x ? y : z                       relu, gelu, gelu_tanh, silu: ops/numbers/unary.h */
#define KS_MAP_TABLE(X)                                                                                                \
    X(CAST, "cast", 1, ANY, 1)                                                                                         \
    X(ABS, "abs", 1, NUMBERS, 1)                                                                                       \
    X(NEG, "neg", 1, NUMBERS, 1)                                                                                       \
    X(SIGN, "sign", 1, NUMBERS, 2)                                                                                     \
    X(EXP, "exp", 1, REAL, 8)                                                                                          \
    X(LOG, "log", 1, REAL, 8)                                                                                          \
    X(SQRT, "sqrt", 1, REAL, 4)                                                                                        \
    X(RSQRT, "rsqrt", 1, REAL, 4)                                                                                      \
    X(RECIPROCAL, "reciprocal", 1, REAL, 4)                                                                            \
    X(SQUARE, "square", 1, NUMBERS, 1)                                                                                 \
    X(FLOOR, "floor", 1, NUMBERS, 1)                                                                                   \
    X(CEIL, "ceil", 1, NUMBERS, 1)                                                                                     \
    X(ROUND, "round", 1, NUMBERS, 1)                                                                                   \
    X(SIN, "sin", 1, REAL, 12)                                                                                         \
    X(COS, "cos", 1, REAL, 12)                                                                                         \
    X(TANH, "tanh", 1, REAL, 12)                                                                                       \
    X(ERF, "erf", 1, REAL, 12)                                                                                         \
    X(SIGMOID, "sigmoid", 1, REAL, 10)                                                                                 \
    X(RELU, "relu", 1, NUMBERS, 1)                                                                                     \
    X(GELU, "gelu", 1, REAL, 14)                                                                                       \
    X(GELU_TANH, "gelu_tanh", 1, REAL, 14)                                                                             \
    X(SILU, "silu", 1, REAL, 10)                                                                                       \
    X(SOFTPLUS, "softplus", 1, REAL, 16)                                                                               \
    X(ELU, "elu", 1, REAL, 10)                                                                                         \
    X(LEAKY_RELU, "leaky_relu", 1, REAL, 2)                                                                            \
    X(CLAMP, "clamp", 1, NUMBERS, 2)                                                                                   \
    X(LINEAR, "linear", 1, NUMBERS, 2)                                                                                 \
    X(NOT, "not", 1, BITS, 1)                                                                                          \
    X(ISNAN, "isnan", 1, TRUTH, 1)                                                                                     \
    X(ADD, "add", 2, NUMBERS, 1)                                                                                       \
    X(SUB, "sub", 2, NUMBERS, 1)                                                                                       \
    X(MUL, "mul", 2, NUMBERS, 1)                                                                                       \
    X(DIV, "div", 2, REAL, 4)                                                                                          \
    X(MIN, "min", 2, ANY, 1)                                                                                           \
    X(MAX, "max", 2, ANY, 1)                                                                                           \
    X(POW, "pow", 2, NUMBERS, 24)                                                                                      \
    X(AND, "and", 2, BITS, 1)                                                                                          \
    X(OR, "or", 2, BITS, 1)                                                                                            \
    X(XOR, "xor", 2, BITS, 1)                                                                                          \
    X(EQ, "eq", 2, TRUTH, 1)                                                                                           \
    X(NE, "ne", 2, TRUTH, 1)                                                                                           \
    X(LT, "lt", 2, TRUTH, 1)                                                                                           \
    X(LE, "le", 2, TRUTH, 1)                                                                                           \
    X(GT, "gt", 2, TRUTH, 1)                                                                                           \
    X(GE, "ge", 2, TRUTH, 1)                                                                                           \
    X(AXPY, "axpy", 2, NUMBERS, 2)                                                                                     \
    X(WHERE, "where", 3, ANY, 1)                                                                                       \
    X(FMA, "fma", 3, NUMBERS, 2)

typedef enum ks_map_function {
#define X(name, text, operands, kind, flops) KS_MAP_##name,
    KS_MAP_TABLE(X)
#undef X
        KS_MAP_FUNCTIONS
} ks_map_function;

/* Of what a function is computed in. FP8, FP16, BF16 and FP32 are FP32 meanwhile. */
typedef enum ks_map_math { KS_MAP_FLOAT, KS_MAP_DOUBLE, KS_MAP_INTEGER } ks_map_math;

/* A resolved spec as it is computed: operand i is INPUT input[i], or the scalar a where that is -1. What stands for another function is
 * that one: isnan is x != x, not of BOOL is x xor true, rounding of integers a copy. */
typedef struct ks_map_work {
    ks_map_function function;
    ks_map_math math;
    int operands, input[KS_MAP_OPERANDS];
    ks_dtype dtype, out; /* of the operands (of where: but for the first one, which is BOOL), and of the output */
    bool truth;          /* the function gives true or false */
    double a, b;         /* of integers: whole, and in the datatype's range */
} ks_map_work;

ks_map_work ks_map_work_of(const ks_spec *spec);

/* The output, row major, with neighbouring axes merged where every operand goes on in the same manner; axes of extent 1 are none.
 * Outermost first, at least one. */
enum { KS_MAP_SHAPE_OPERANDS = 4 };
typedef struct ks_map_shape {
    int64_t count; /* elements of the output */
    int rank;
    int64_t dims[KS_RANK_MAX];
    int64_t stride[KS_MAP_SHAPE_OPERANDS][KS_RANK_MAX]; /* elements; 0: the operand repeats */
    bool flat[KS_MAP_SHAPE_OPERANDS];                   /* the operand's elements lie as the output's */
} ks_map_shape;

ks_map_shape ks_map_shape_of(const ks_spec *spec, const ks_map_work *work);
/* Of any operands that broadcast to the output; NULL: there is none. */
ks_map_shape ks_map_shape_for(const ks_tensor *out, const ks_tensor *const in[KS_MAP_SHAPE_OPERANDS]);

/* What maps.c shares: rank and dimensions of what a spec's inputs broadcast to; operations of an element. */
ks_status ks_map_broadcast(ks_spec *spec, ks_tensor *out, ks_error *error);
int ks_map_flops(ks_map_function function);

#ifdef __cplusplus
}
#endif
#endif
