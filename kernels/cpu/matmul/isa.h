/* tiles.h for both precisions of one vector width (ISA, ISA_TARGET, TILE_ROWS, TILE_VECTORS, which end here),
 * included by matmul.c once per width: no include guard. */
#define REAL float
#include "cpu/matmul/tiles.h"
#undef REAL
#define REAL double
#include "cpu/matmul/tiles.h"
#undef REAL
#undef ISA
#undef ISA_TARGET
#undef TILE_ROWS
#undef TILE_VECTORS
