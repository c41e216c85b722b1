/* Names of the unary functions that several ops have: what norm, map and matmul's epilogue call alike gives the same bits for the same
 * value and datatype on one backend. Their arithmetic: cpu/unary.h and cuda/common/unary.cuh, which share none. */
#ifndef KS_OPS_UNARY_H
#define KS_OPS_UNARY_H

/* X(NAME, "name") ; the plain formulas: NaN stays NaN, and gelu, gelu_tanh and silu of -inf are NaN, as in PyTorch.
 *
 *   relu       x < 0 ? 0 : x
 *   gelu       0.5 x (1 + erf(x / sqrt 2))
 *   gelu_tanh  0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
 *   silu       x / (1 + exp(-x))
 *
 * Numbers  |error| <= 2^-22 |x| where the result is FP32; 2^-12 |y| + 2^-22 |x| before its rounding where it is narrower. */
#define KS_ACTIVATION_TABLE(X)                                                                                         \
    X(NONE, "none")                                                                                                    \
    X(RELU, "relu")                                                                                                    \
    X(GELU, "gelu")                                                                                                    \
    X(GELU_TANH, "gelu_tanh")                                                                                          \
    X(SILU, "silu")

typedef enum ks_activation {
#define X(name, text) KS_ACTIVATION_##name,
    KS_ACTIVATION_TABLE(X)
#undef X
        KS_ACTIVATION_COUNT
} ks_activation;

/* A parameter's choices are an array of these and NULL. */
#define KS_ACTIVATION_TEXT(name, text) text,

#endif
