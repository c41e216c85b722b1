/* Writes definitions of models that are right, or nearly so: each byte of a fuzzer's input is one choice. Changed bytes of a document are
 * hardly ever one that has shapes; changed choices mostly are. What a kept input writes changes with this file and with the operations. */
#ifndef KS_DEFINITION_WRITER_H
#define KS_DEFINITION_WRITER_H
#include <stddef.h>
#include <stdint.h>

enum { DEFINITION_TEXT_MAX = 1 << 16 };

/* Returns the length. Input that is used up chooses the first of all that is left to choose. */
size_t definition_write(const uint8_t *choices, size_t size, char text[DEFINITION_TEXT_MAX]);
#endif
