# What cmake --install puts where, by GNUInstallDirs: the program, its manual and completions, units of systemd, documents, and below
# share/kernserve what stands around a daemon: proxies, Kubernetes, Prometheus, examples of clients, load. The configuration file is
# written only where there is none. Units name the program and the file by the prefix that is installed to.
include(GNUInstallDirs)
set(KERNSERVE_UNIT_DIR lib/systemd/system CACHE STRING "folder for units of systemd")
set(KERNSERVE_SHARE_DIR ${CMAKE_INSTALL_DATADIR}/kernserve CACHE STRING "folder for the files around a daemon")

# The program prints its own manual and completions.
# ks_printed(FILE OPTION): FILE in the build folder
function(ks_printed file option)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/printed/${file} COMMAND ${CMAKE_COMMAND} -E make_directory printed
    COMMAND kernserve ${option} > ${CMAKE_BINARY_DIR}/printed/${file} DEPENDS kernserve VERBATIM WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  set(KS_PRINTED ${KS_PRINTED} ${CMAKE_BINARY_DIR}/printed/${file} PARENT_SCOPE)
endfunction()
ks_printed(kernserve.8 --manual=8)
ks_printed(kernserve.conf.5 --manual=5)
ks_printed(kernserve --completion=bash)
ks_printed(_kernserve --completion=zsh)
add_custom_target(printed ALL DEPENDS ${KS_PRINTED})

install(TARGETS kernserve RUNTIME)
install(FILES ${CMAKE_BINARY_DIR}/printed/kernserve.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES ${CMAKE_BINARY_DIR}/printed/kernserve.conf.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${CMAKE_BINARY_DIR}/printed/kernserve DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${CMAKE_BINARY_DIR}/printed/_kernserve DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES README.md CHANGELOG.md SECURITY.md LICENSE ${CMAKE_BINARY_DIR}/kernserve.spdx.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
foreach(folder tests/load tests/clients deploy/prometheus deploy/grafana deploy/k8s deploy/helm deploy/kserve deploy/haproxy deploy/envoy)
  install(DIRECTORY ${folder} DESTINATION ${KERNSERVE_SHARE_DIR} USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)
endforeach()
install(FILES deploy/compose.yaml DESTINATION ${KERNSERVE_SHARE_DIR})
install(DIRECTORY deploy/systemd DESTINATION ${KERNSERVE_SHARE_DIR} FILES_MATCHING PATTERN *.conf) # drop-ins are the operator's choice

install(CODE "
  set(deploy \"${CMAKE_CURRENT_SOURCE_DIR}/deploy\")
  set(built \"${CMAKE_BINARY_DIR}/printed\")
  set(bindir \"${CMAKE_INSTALL_BINDIR}\")
  set(sysconfdir \"${CMAKE_INSTALL_SYSCONFDIR}\")
  set(unitdir \"${KERNSERVE_UNIT_DIR}\")")
install(CODE [[
  cmake_path(ABSOLUTE_PATH bindir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  cmake_path(ABSOLUTE_PATH unitdir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr") # as GNUInstallDirs has it
    cmake_path(ABSOLUTE_PATH sysconfdir BASE_DIRECTORY "/")
  else()
    cmake_path(ABSOLUTE_PATH sysconfdir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  endif()
  if(NOT EXISTS "$ENV{DESTDIR}${sysconfdir}/kernserve/kernserve.conf")
    file(INSTALL "${deploy}/config/kernserve.conf" DESTINATION "${sysconfdir}/kernserve")
  endif()
  file(GLOB units "${deploy}/systemd/*.service" "${deploy}/systemd/*.socket")
  foreach(unit IN LISTS units)
    file(READ "${unit}" text)
    string(REPLACE "/usr/bin/kernserve" "${bindir}/kernserve" text "${text}")
    string(REPLACE "/etc/kernserve/" "${sysconfdir}/kernserve/" text "${text}")
    cmake_path(GET unit FILENAME name)
    file(WRITE "${built}/${name}" "${text}")
    file(INSTALL "${built}/${name}" DESTINATION "${unitdir}")
  endforeach()]])
