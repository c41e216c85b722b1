/* Functions of the driver that are asked for by name. */
#ifndef KS_EMULATE_CUDA_TYPEDEFS_H
#define KS_EMULATE_CUDA_TYPEDEFS_H

#include "cuda.h"

typedef CUresult (*PFN_cuTensorMapEncodeTiled_v12000)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                                      const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                                      const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Of pages that are mapped when needed, which no emulated kernel does: they are only named in structs. */
typedef unsigned long long CUmemGenericAllocationHandle;
typedef void (*PFN_cuMemAddressReserve_v10020)(void);
typedef PFN_cuMemAddressReserve_v10020 PFN_cuMemAddressFree_v10020, PFN_cuMemCreate_v10020, PFN_cuMemRelease_v10020,
    PFN_cuMemMap_v10020, PFN_cuMemUnmap_v10020, PFN_cuMemSetAccess_v10020;

#endif
