# SPDX-License-Identifier: Apache-2.0
# Runs the CMake code that a page, the file PAGE, has below a heading. It is about a target `trainer`, which is there before.
function(do_what_is_written_below heading)
  set(block ${CMAKE_BINARY_DIR}/block.cmake)
  execute_process(
    COMMAND sed -n "/^## ${heading}\$/,/^## /{/^```cmake\$/,/^```\$/{/^```/!p}}" ${PAGE}
    OUTPUT_FILE ${block}
    COMMAND_ERROR_IS_FATAL ANY
  )
  include(${block})
  get_target_property(libraries trainer LINK_LIBRARIES)
  if(NOT libraries MATCHES tutti::tutti)
    message(FATAL_ERROR "Below '${heading}', ${PAGE} has the trainer linked with: ${libraries}")
  endif()
endfunction()
