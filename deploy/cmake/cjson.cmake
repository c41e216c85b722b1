# The least version of cJSON: 1.7.15, of Debian 12 its fourth security update. The header tells the first alone: Debian mends
# faults (nested arrays, a string without its end, a pointer's index: CVE-2023-50471, -50472, -26819, 2025-57052) without a new
# number, so where dpkg is there and the package is of this line, its version is looked at too. Other systems' packages have
# numbers of their own; what they mend is theirs to say. Run by the build, and by tests: cmake -D HEADER=... -D PACKAGE=... -P.
set(KS_CJSON_LEAST 1.7.15)
set(KS_CJSON_LEAST_DEBIAN 1.7.15-1+deb12u4)

# header: cJSON.h; package: the version that dpkg has, "" where it has none. wrong: "" or the sentence.
function(ks_check_cjson header package wrong)
  set(version "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${header} line REGEX "^#define CJSON_VERSION_${part} ")
    string(REGEX REPLACE ".* " "" line "${line}")
    list(APPEND version "${line}")
  endforeach()
  list(JOIN version "." version)
  set(${wrong} "" PARENT_SCOPE)
  if(NOT version MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$" OR version VERSION_LESS KS_CJSON_LEAST)
    set(${wrong} "cJSON ${version} in ${header}: ${KS_CJSON_LEAST} is the least" PARENT_SCOPE)
  elseif(package MATCHES "^1\\.7\\.15-1(\\+deb12u([0-9]+))?$")
    if(NOT CMAKE_MATCH_2 OR CMAKE_MATCH_2 LESS 4)
      set(${wrong} "cJSON: package ${package} has known faults: ${KS_CJSON_LEAST_DEBIAN} is the least" PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(ks_cjson_package out)
  set(${out} "" PARENT_SCOPE)
  find_program(DPKG_QUERY dpkg-query)
  if(DPKG_QUERY)
    execute_process(COMMAND ${DPKG_QUERY} --show --showformat=\${Version} libcjson1 OUTPUT_VARIABLE version ERROR_QUIET
                    RESULT_VARIABLE failed)
    if(NOT failed)
      set(${out} "${version}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  ks_check_cjson(${HEADER} "${PACKAGE}" wrong)
  if(wrong)
    message(FATAL_ERROR "${wrong}")
  endif()
endif()
