# SPDX-License-Identifier: Apache-2.0
# What the library is built with. All of it is private: an installed tutti needs none of these headers.

# Fails with the one line that helps, instead of CMake's page on package files.
function(tutti_require found what package)
  if(NOT found)
    message(
      FATAL_ERROR
      "tutti needs ${what}: install the package ${package} (apt-get install ${package}), "
      "or run scripts/install-deps, which installs everything that is missing."
    )
  endif()
endfunction()

find_package(Threads REQUIRED)

# A parent project may have brought its own.
if(NOT TARGET fmt::fmt-header-only)
  find_package(fmt QUIET)
  tutti_require("${fmt_FOUND}" "fmt" libfmt-dev)
endif()
if(NOT TARGET nlohmann_json::nlohmann_json)
  find_package(nlohmann_json QUIET)
  tutti_require("${nlohmann_json_FOUND}" "nlohmann_json" nlohmann-json3-dev)
endif()

# fmt's library would have to be there where an installed tutti is used. Otherwise it saves compiling most of fmt again in
# every source that formats.
option(TUTTI_FMT_LIBRARY "Link fmt's library instead of using its headers alone: builds faster, not for installing" OFF)
mark_as_advanced(TUTTI_FMT_LIBRARY)
set(tutti_fmt fmt::fmt-header-only)
if(TUTTI_FMT_LIBRARY)
  if(TUTTI_INSTALL)
    message(FATAL_ERROR "With TUTTI_FMT_LIBRARY, tutti cannot be installed: set TUTTI_INSTALL to OFF.")
  endif()
  set(tutti_fmt fmt::fmt)
endif()

find_path(TUTTI_DLPACK_INCLUDE_DIR dlpack/dlpack.h)
mark_as_advanced(TUTTI_DLPACK_INCLUDE_DIR)
tutti_require("${TUTTI_DLPACK_INCLUDE_DIR}" "dlpack/dlpack.h" libdlpack-dev)
add_library(tutti_dlpack_headers INTERFACE)
target_include_directories(tutti_dlpack_headers SYSTEM INTERFACE ${TUTTI_DLPACK_INCLUDE_DIR})

# What protects the connections of tutti::tcp. Of its two libraries the static one, if there is a choice: then a shared tutti has
# within what it needs, and hidden, so that a program may have another version; programs with a static tutti link it themselves.
find_path(TUTTI_SODIUM_INCLUDE_DIR sodium.h)
find_library(TUTTI_SODIUM_LIBRARY NAMES libsodium.a sodium)
mark_as_advanced(TUTTI_SODIUM_INCLUDE_DIR TUTTI_SODIUM_LIBRARY)
if(NOT TUTTI_SODIUM_INCLUDE_DIR OR NOT TUTTI_SODIUM_LIBRARY)
  tutti_require(FALSE "libsodium" libsodium-dev)
endif()
add_library(tutti_sodium INTERFACE)
target_include_directories(tutti_sodium SYSTEM INTERFACE ${TUTTI_SODIUM_INCLUDE_DIR})
target_link_libraries(tutti_sodium INTERFACE ${TUTTI_SODIUM_LIBRARY})

# Headers alone, which CUDA toolkits have; scripts/install-deps brings them where there is none.
set(TUTTI_HAS_NVTX OFF)
if(TUTTI_NVTX)
  find_path(
    TUTTI_NVTX_INCLUDE_DIR
    nvtx3/nvToolsExt.h
    HINTS
    ENV CUDA_HOME
    ENV CUDA_PATH
    PATH_SUFFIXES include
    PATHS /usr/local/cuda ${PROJECT_SOURCE_DIR}/.deps/prefix/usr
  )
  mark_as_advanced(TUTTI_NVTX_INCLUDE_DIR)
  if(TUTTI_NVTX_INCLUDE_DIR)
    set(TUTTI_HAS_NVTX ON)
    # A folder with nothing else in it: that of a toolkit has headers of CUDA, too, perhaps of another version.
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/nvtx)
    file(CREATE_LINK ${TUTTI_NVTX_INCLUDE_DIR}/nvtx3 ${PROJECT_BINARY_DIR}/nvtx/nvtx3 SYMBOLIC)
    add_library(tutti_nvtx_headers INTERFACE)
    target_include_directories(tutti_nvtx_headers SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/nvtx)
  elseif(NOT TUTTI_NVTX STREQUAL AUTO)
    tutti_require(FALSE "nvtx3/nvToolsExt.h" nvidia-cuda-dev)
  endif()
endif()
message(STATUS "tutti: profilers are told through NVTX ${TUTTI_HAS_NVTX}")

if(TUTTI_BUILD_TESTS)
  find_package(GTest QUIET)
  tutti_require("${GTest_FOUND}" "GoogleTest" libgtest-dev)
  if(NOT TARGET GTest::gmock) # a package of its own on Debian, found through GoogleTest's file
    tutti_require(FALSE "GoogleMock" libgmock-dev)
  endif()
endif()

if(TUTTI_BUILD_PERF)
  find_package(benchmark QUIET)
  tutti_require("${benchmark_FOUND}" "Google Benchmark" libbenchmark-dev)
  find_path(TUTTI_CLI11_INCLUDE_DIR CLI/CLI.hpp)
  mark_as_advanced(TUTTI_CLI11_INCLUDE_DIR)
  tutti_require("${TUTTI_CLI11_INCLUDE_DIR}" "CLI11" libcli11-dev)
  add_library(tutti_cli11_headers INTERFACE)
  target_include_directories(tutti_cli11_headers SYSTEM INTERFACE ${TUTTI_CLI11_INCLUDE_DIR})
endif()
