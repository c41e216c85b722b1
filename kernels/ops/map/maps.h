/* Several of map's functions one behind the other as one piece of work, whose values between them lie nowhere: an op that no client names,
 * made of a chain's nodes (ops/chain/maps.c).
 *
 * Registers  INPUT0 to INPUT3 are registers 0 to 3, as far as they are given; a function reads registers and leaves its result in one, which
 *            is none that it reads. The last one's result is OUTPUT0. Each function's result has the output's shape, and inputs broadcast.
 * Bits       Each result is rounded to its datatype, as map rounds it: OUTPUT0 is what the functions give one by one, but for which bits a
 *            NaN has on a GPU. */
#ifndef KS_OPS_MAPS_H
#define KS_OPS_MAPS_H

#include "ops/map.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_MAPS_MAX = 8, KS_MAPS_INPUTS = 4, KS_MAPS_REGISTERS = 6 };

typedef struct ks_maps_function {
    ks_map_work work;              /* its `input` says nothing */
    int from[KS_MAP_OPERANDS], to; /* registers; -1: the scalar a, or no operand */
} ks_maps_function;

extern const ks_op ks_op_maps;

/* Among a spec's parameters: so many functions, 1 at least. */
void ks_maps_write(const ks_maps_function *functions, int count, ks_value params[KS_PARAMS_MAX]);
int ks_maps_count(const ks_spec *spec);
ks_maps_function ks_maps_read(const ks_spec *spec, int index);

/* Gives each function its registers, such that no two values that are still read share one: inputs 0 .. inputs-1 stay until their last
 * reader. from and to: values by number, inputs first, then the functions' results in their order; -1 as above. false: there are too few. */
bool ks_maps_assign(ks_maps_function *functions, int count, int inputs);

/* Operand k of the shape is INPUTk. */
ks_map_shape ks_maps_shape_of(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
