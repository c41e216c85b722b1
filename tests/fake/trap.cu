/* A kernel that traps, for kernserve_faulty: the context of its process is lost from then on, as by a fault of a kernel of ours. */
#include <cuda_runtime.h>

__global__ void fake_trap_kernel(void)
{
    __trap();
}

extern "C" void ks_fake_trap(void)
{
    /* The thread's own stream: the others are found out by their own calls. */
    fake_trap_kernel<<<1, 1, 0, cudaStreamPerThread>>>();
    (void)cudaGetLastError();
}
