# SPDX-License-Identifier: Apache-2.0
# How tutti is optimised where nobody has said so: by itself it is built as users want it, and as a part of a project
# without a build type, as that build type would build it. The project's own targets stay as they are.
if(CMAKE_BUILD_TYPE OR CMAKE_CONFIGURATION_TYPES)
  return()
endif()
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
  return()
endif()

# The project may have chosen by options of its own.
get_directory_property(tutti_inherited_options COMPILE_OPTIONS)
list(JOIN tutti_inherited_options " " tutti_inherited_options)
if("${CMAKE_CXX_FLAGS} ${tutti_inherited_options}" MATCHES "(^|[ :>;])-O")
  return()
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX,CUDA>:-O3>")
add_compile_definitions(NDEBUG)
message(
  STATUS
  "tutti: ${CMAKE_PROJECT_NAME} has no build type; tutti is optimised all the same (-O3). For a build type "
  "of everything: -DCMAKE_BUILD_TYPE=Release"
)
