# SPDX-License-Identifier: Apache-2.0
# Writes a header with the commit of the sources in `source` to `output`, if it says something else: at every build, as a
# commit needs no new configuration. TUTTI_COMMIT in the environment names it where git does not know it.
cmake_minimum_required(VERSION 3.25)
set(commit "$ENV{TUTTI_COMMIT}")
if(commit STREQUAL "")
  execute_process(
    COMMAND git -C ${source} rev-parse --show-toplevel
    OUTPUT_VARIABLE top
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET
    RESULT_VARIABLE status
  )
  file(REAL_PATH ${source} here)
  if(status EQUAL 0 AND top STREQUAL here) # and not the commit of a project that tutti is a part of
    execute_process(
      COMMAND git -C ${source} describe --always --dirty --exclude *
      OUTPUT_VARIABLE commit
      OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET
    )
  endif()
endif()
file(
  CONFIGURE
  OUTPUT ${output}
  CONTENT
    "// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::perf {
inline constexpr const char* source_commit = \"${commit}\";
}  // namespace tutti::perf
"
)
