/* A fuzz target: libFuzzer calls it with inputs of its own making, replay.c with the files of a corpus. It ends the
 * process (assert) when something that must always hold does not. */
#ifndef KS_FUZZ_H
#define KS_FUZZ_H
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
#endif
