# SPDX-License-Identifier: Apache-2.0
# cpack runs it on what it is about to pack: manual pages are compressed on Debian.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()

find_program(GZIP_PROGRAM gzip REQUIRED)
file(GLOB_RECURSE pages ${CPACK_TEMPORARY_DIRECTORY}/tutti-perf.1)
foreach(page IN LISTS pages)
  execute_process(COMMAND ${GZIP_PROGRAM} -9n ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
