# SPDX-License-Identifier: Apache-2.0
# cpack runs it on what it is about to pack: some files belong elsewhere on Debian, or compressed.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()

# Its zsh does not look into site-functions below /usr/share.
file(GLOB_RECURSE completions ${CPACK_TEMPORARY_DIRECTORY}/_tutti-perf)
foreach(completion IN LISTS completions)
  cmake_path(GET completion PARENT_PATH functions)
  cmake_path(REPLACE_FILENAME functions vendor-completions OUTPUT_VARIABLE vendor)
  file(RENAME ${functions} ${vendor})
endforeach()

find_program(GZIP_PROGRAM gzip REQUIRED)
file(GLOB_RECURSE pages ${CPACK_TEMPORARY_DIRECTORY}/tutti-perf.1)
foreach(page IN LISTS pages)
  execute_process(COMMAND ${GZIP_PROGRAM} -9n ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
