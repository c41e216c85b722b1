// The door to NVTX without a GPU: two threads push and pop, one names a stream.
#include "cuda/common/nvtx.h"

#include <thread>

static void run(int launches)
{
    for (int i = 0; i < launches; i++) {
        ks_nvtx_push(KS_NVTX_LAUNCH);
        ks_nvtx_pop();
        ks_nvtx_push(KS_NVTX_COLLECT);
        ks_nvtx_pop();
    }
    ks_nvtx_push(KS_NVTX_CAPTURE);
    ks_nvtx_pop();
}

int main()
{
    std::thread other(run, 70);
    run(30);
    other.join();
    ks_nvtx_name_lane(nullptr, 3);
    return 0;
}
