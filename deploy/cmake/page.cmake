# A page as embed.cmake has it, and NAME_policy, its Content-Security-Policy, which lets its one style and its one script run by
# their SHA-256, and nothing else: cmake -D IN=status.html -D OUT=status_html.c -D NAME=IDENTIFIER -P page.cmake
include(${CMAKE_CURRENT_LIST_DIR}/embed.cmake)
file(READ ${IN} page)
if(length GREATER 65536)
  message(FATAL_ERROR "${IN} has ${length} bytes, at most 65536 are served")
endif()

# base64(HEX OUT): of the 64 digits of a SHA-256. Three digits are two signs; the last one, with two bits of nothing, is one.
function(base64 hex out)
  set(signs ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(text "")
  foreach(at RANGE 0 60 3)
    string(SUBSTRING ${hex} ${at} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING ${signs} ${high} 1 first)
    string(SUBSTRING ${signs} ${low} 1 second)
    string(APPEND text ${first}${second})
  endforeach()
  string(SUBSTRING ${hex} 63 1 last)
  math(EXPR high "0x${last} << 2")
  string(SUBSTRING ${signs} ${high} 1 first)
  set(${out} "${text}${first}=" PARENT_SCOPE)
endfunction()

# source_of(TAG OUT): 'sha256-...' of what stands between <TAG> and </TAG>, of which the page has one
function(source_of tag out)
  string(FIND "${page}" "<${tag}>" begin)
  string(FIND "${page}" "<${tag}>" other REVERSE)
  string(FIND "${page}" "</${tag}>" end)
  if(begin EQUAL -1 OR NOT begin EQUAL other OR end LESS begin)
    message(FATAL_ERROR "${IN} has not one <${tag}>")
  endif()
  string(LENGTH "<${tag}>" skip)
  math(EXPR begin "${begin} + ${skip}")
  math(EXPR count "${end} - ${begin}")
  string(SUBSTRING "${page}" ${begin} ${count} body)
  string(SHA256 hash "${body}")
  base64(${hash} text)
  set(${out} "'sha256-${text}'" PARENT_SCOPE)
endfunction()

source_of(style style)
source_of(script script)
file(APPEND ${OUT} "
extern const char ${NAME}_policy[];
const char ${NAME}_policy[] =
    \"default-src 'none'; script-src ${script}; style-src ${style}; img-src data:; connect-src 'self'; \"
    \"base-uri 'none'; form-action 'none'; frame-ancestors 'none'\";
")
