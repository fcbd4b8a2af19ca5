# SPDX-License-Identifier: Apache-2.0
# The warnings the project keeps clean. They become errors in the presets and in CI, never in a user's build.
add_library(tutti_warnings INTERFACE)
target_compile_options(
  tutti_warnings
  INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wsign-conversion;-Wshadow;-Wnon-virtual-dtor;-Wold-style-cast>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall>"
    # g++ 12 takes the sum of a literal and a string for an overlap (its bug 105329).
    "$<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>"
)
