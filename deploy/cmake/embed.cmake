# A text file as a C array of characters, with a 0 behind it: cmake -D IN=FILE -D OUT=FILE.c -D NAME=IDENTIFIER -P embed.cmake
file(READ ${IN} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR length "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
get_filename_component(file ${IN} NAME)
file(WRITE ${OUT} "/* ${file}, as it is. */
#include <stddef.h>
extern const char ${NAME}[];
extern const size_t ${NAME}_bytes;
const size_t ${NAME}_bytes = ${length};
const char ${NAME}[] = {
${bytes}0};
")
