# A text file as a C array: cmake -D IN=FILE -D OUT=FILE.c -D NAME=IDENTIFIER -P embed.cmake
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
get_filename_component(file ${IN} NAME)
file(WRITE ${OUT} "/* ${file}, as it is. */\nextern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
