# SPDX-License-Identifier: Apache-2.0
# A keyword of these functions that is handed on without a value counts as left out. CMake 3.31 and later warn without this.
if(POLICY CMP0174)
  cmake_policy(SET CMP0174 NEW)
endif()

# Tools that slow programs down (sanitizers) need more time: all time limits are multiplied by this.
if(CMAKE_CXX_FLAGS MATCHES -fsanitize)
  set(TUTTI_TEST_TIMEOUT_SCALE 5 CACHE STRING "Factor on the tests' time limits")
else()
  set(TUTTI_TEST_TIMEOUT_SCALE 1 CACHE STRING "Factor on the tests' time limits")
endif()
mark_as_advanced(TUTTI_TEST_TIMEOUT_SCALE)

set(TUTTI_TEST_THREADS_ALONE OFF)
if(CMAKE_CXX_FLAGS MATCHES -fsanitize=thread)
  set(TUTTI_TEST_THREADS_ALONE ON)
endif()

# What is tested is the library: most tests' own code need not be fast, and takes long to optimise, above all if it is
# instrumented; nor is its own behaviour of interest.
set(tutti_test_compile_options "")
if(CMAKE_CXX_FLAGS MATCHES -fsanitize)
  set(tutti_test_compile_options $<$<COMPILE_LANGUAGE:CXX>:-O0> $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
elseif(CMAKE_BUILD_TYPE STREQUAL Release)
  set(tutti_test_compile_options $<$<COMPILE_LANGUAGE:CXX>:-O1>)
endif()

# Off by default: clang's tools (clang-tidy, clangd) trip over what g++ has precompiled when they read compile_commands.json.
option(TUTTI_TEST_PCH "Precompile what the tests include of others' headers: they build faster" OFF)
mark_as_advanced(TUTTI_TEST_PCH)
option(TUTTI_TEST_UNITY "Compile each test program in one piece: they build faster" OFF)
mark_as_advanced(TUTTI_TEST_UNITY)
# Off by default: processes that share a GPU have it by turns, so what waits for other GPUs may wait for many of them.
option(
  TUTTI_TEST_SHARED_GPUS
  "Let tests of GPUs run beside one another, as ctest -j allows, but for those labelled alone"
  OFF
)
mark_as_advanced(TUTTI_TEST_SHARED_GPUS)
option(
  TUTTI_TEST_COMPUTE_SANITIZER
  "Register tests that bring compute-sanitizer with them; the others get it from TUTTI_TEST_LAUNCHER"
  OFF
)
mark_as_advanced(TUTTI_TEST_COMPUTE_SANITIZER)
# A compiler cache takes part if told that only what is used of these headers counts, and if their times do not.
if(TUTTI_TEST_PCH AND CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  set(tutti_sloppiness pch_defines,time_macros)
  if(DEFINED ENV{CCACHE_SLOPPINESS})
    string(PREPEND tutti_sloppiness $ENV{CCACHE_SLOPPINESS},)
  endif()
  set(
    CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND}
    -E
    env
    CCACHE_SLOPPINESS=${tutti_sloppiness}
    ${CMAKE_CXX_COMPILER_LAUNCHER}
  )
endif()
# For targets whose code is compiled with the options of tutti_test_headers (see tests/support), which they get here.
function(tutti_test_precompile target)
  if(NOT TUTTI_TEST_PCH)
    return()
  endif()
  target_compile_options(
    ${target}
    PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>"
  )
  if(NOT target STREQUAL tutti_test_headers)
    target_precompile_headers(${target} REUSE_FROM tutti_test_headers)
  endif()
endfunction()

# tutti_test(<name> SOURCES <file>...
#            [BACKENDS host cuda]      default: both
#            [TRANSPORTS p2p staged nccl]  one run each, with TUTTI_TRANSPORT set; nccl only on cuda; default: one run, unset
#            [LABELS multi_gpu ...]    multi_gpu marks the cuda runs that need two GPUs or more, kernels those that
#                                      test kernels (for runs by hand), forks those whose processes fork, alone
#                                      those that no other process may use the GPUs beside, timed those that check
#                                      how long GPUs take, which tells nothing under a tool
#            [ENVIRONMENT NAME=value ...]
#            [LIBRARIES <target>...]
#            [OPTIMIZED]               its own code computes much
#            [THREADS]                 what it tests is used by several threads at a time: the thread sanitizer has it
#                                      too, unless it would then wait for minutes
#            [WAITS]                   it waits more than it computes: for timeouts, for ranks that are stopped
#            [SHARDS <number>]         so many cuda runs, each with its share of the tests: for those that mostly wait
#                                      for processes to start CUDA; default: 1
#            [TIMEOUT <seconds>])      default: 120
#
# Builds the GoogleTest program test_<name> and registers one ctest entry for each backend and transport, named
# <backend>.<name>[.<transport>] (shards: cuda.<name>.<number>) and labelled <backend>. A run in which no test passed (all
# skipped, or none selected) counts as a failure. A program that should start once more under other settings gets a
# tutti_test_run.
#
# To ctest, an entry takes two processors, and one that waits takes one: told of twice as many as there are (scripts/test
# does that), it keeps all busy. Ranks that share GPUs with other tests count as four, since each process waits for its turn.
function(tutti_test name)
  cmake_parse_arguments(
    PARSE_ARGV 1
    arg
    "OPTIMIZED;THREADS;WAITS"
    "SHARDS;TIMEOUT"
    "SOURCES;BACKENDS;TRANSPORTS;LABELS;ENVIRONMENT;LIBRARIES"
  )
  if(NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tutti_test(${name}): SOURCES missing, or unknown arguments '${arg_UNPARSED_ARGUMENTS}'")
  endif()

  add_executable(test_${name} ${arg_SOURCES})
  if(TUTTI_TEST_THREADS_ALONE AND NOT arg_THREADS)
    set_target_properties(test_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  target_link_libraries(
    test_${name}
    PRIVATE
      tutti::tutti
      GTest::gtest_main
      ${tutti_fmt}
      nlohmann_json::nlohmann_json
      tutti_dlpack_headers
      tutti_warnings
      ${arg_LIBRARIES}
  )
  if(NOT arg_OPTIMIZED)
    target_compile_options(test_${name} PRIVATE ${tutti_test_compile_options})
    tutti_test_precompile(test_${name})
  endif()
  # Tests may look behind the public headers.
  target_include_directories(
    test_${name}
    PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests
  )

  if(NOT arg_BACKENDS)
    set(arg_BACKENDS host cuda)
  endif()
  set(waits "")
  if(arg_WAITS)
    set(waits WAITS)
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  foreach(backend IN LISTS arg_BACKENDS)
    if(NOT arg_TRANSPORTS AND (backend STREQUAL host OR arg_SHARDS EQUAL 1))
      tutti_test_run(
        ${backend}.${name}
        ${waits}
        TARGET test_${name}
        BACKEND ${backend}
        LABELS ${arg_LABELS}
        ENVIRONMENT ${arg_ENVIRONMENT}
        TIMEOUT ${arg_TIMEOUT}
      )
    elseif(NOT arg_TRANSPORTS)
      foreach(shard RANGE 1 ${arg_SHARDS})
        math(EXPR index "${shard} - 1")
        tutti_test_run(
          ${backend}.${name}.${shard}
          ${waits}
          TARGET test_${name}
          BACKEND ${backend}
          LABELS ${arg_LABELS}
          ENVIRONMENT ${arg_ENVIRONMENT} GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${index}
          TIMEOUT ${arg_TIMEOUT}
        )
      endforeach()
    endif()
    foreach(transport IN LISTS arg_TRANSPORTS)
      tutti_test_run(
        ${backend}.${name}.${transport}
        ${waits}
        TARGET test_${name}
        BACKEND ${backend}
        TRANSPORT ${transport}
        LABELS ${arg_LABELS}
        ENVIRONMENT ${arg_ENVIRONMENT}
        TIMEOUT ${arg_TIMEOUT}
      )
    endforeach()
  endforeach()
endfunction()

# One ctest entry: the test program <target> on one backend. Registers nothing where the program is not built, or the build
# lacks the backend or the transport.
function(tutti_test_run test_name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "WAITS" "TARGET;BACKEND;TRANSPORT;TIMEOUT" "LABELS;ENVIRONMENT;ARGUMENTS")
  get_target_property(is_left_out ${arg_TARGET} EXCLUDE_FROM_ALL)
  if(is_left_out OR (arg_BACKEND STREQUAL cuda AND NOT TUTTI_HAS_CUDA))
    return()
  endif()
  if(arg_TRANSPORT STREQUAL nccl AND NOT (arg_BACKEND STREQUAL cuda AND TUTTI_HAS_NCCL))
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${TUTTI_TEST_TIMEOUT_SCALE}")

  add_test(
    NAME ${test_name}
    COMMAND ${PROJECT_SOURCE_DIR}/tests/run_test $<TARGET_FILE:${arg_TARGET}> --gtest_brief=1 ${arg_ARGUMENTS}
  )
  set(processors 2)
  if(arg_WAITS)
    set(processors 1)
  endif()
  set(environment TUTTI_BACKEND=${arg_BACKEND} TUTTI_TEST_TIMEOUT=${arg_TIMEOUT} ${arg_ENVIRONMENT})
  if(arg_TRANSPORT)
    list(APPEND environment TUTTI_TRANSPORT=${arg_TRANSPORT})
  endif()
  set_tests_properties(
    ${test_name}
    PROPERTIES
      ENVIRONMENT "${environment}"
      TIMEOUT ${arg_TIMEOUT}
      COST ${arg_TIMEOUT} # those that may take long start first, so that none is left alone at the end
      PROCESSORS ${processors}
      FAIL_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests"
  )
  if(arg_BACKEND STREQUAL cuda)
    set_tests_properties(${test_name} PROPERTIES LABELS "cuda;${arg_LABELS}")
    if(alone IN_LIST arg_LABELS)
      set_tests_properties(${test_name} PROPERTIES RUN_SERIAL ON)
    elseif(NOT TUTTI_TEST_SHARED_GPUS)
      set_tests_properties(${test_name} PROPERTIES RESOURCE_LOCK gpus)
    elseif(ranks IN_LIST arg_LABELS)
      set_tests_properties(${test_name} PROPERTIES PROCESSORS 4)
    endif()
  else()
    list(REMOVE_ITEM arg_LABELS multi_gpu)
    set_tests_properties(${test_name} PROPERTIES LABELS "${arg_BACKEND};${arg_LABELS}")
  endif()
endfunction()

# tutti_mpi_test(<name> SOURCES <file>... [LIBRARIES <target>...] <what tutti_mpi_runs_of takes>...)
#
# Builds the GoogleTest program test_mpi_<name>, with main.cpp of tests/collectives/bootstrap/mpi or a main
# function of its own, and registers its runs.
function(tutti_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;RANKS;GPU_RANKS;PLACES;LIBRARIES;ARGUMENTS")
  if(NOT arg_SOURCES OR NOT (arg_RANKS OR arg_PLACES) OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tutti_mpi_test(${name}): SOURCES or RANKS missing, or unknown '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  add_executable(test_mpi_${name} ${arg_SOURCES})
  target_link_libraries(
    test_mpi_${name}
    PRIVATE
      tutti::mpi
      tutti_test_support
      GTest::gtest
      ${tutti_fmt}
      tutti_warnings
      $<TARGET_NAME_IF_EXISTS:tutti_test_keep_libraries>
      ${arg_LIBRARIES}
  )
  target_compile_options(test_mpi_${name} PRIVATE ${tutti_test_compile_options})
  tutti_test_precompile(test_mpi_${name})
  target_include_directories(
    test_mpi_${name}
    PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests
  )
  tutti_mpi_runs_of(
    ${name}
    RANKS ${arg_RANKS}
    GPU_RANKS ${arg_GPU_RANKS}
    PLACES ${arg_PLACES}
    ARGUMENTS ${arg_ARGUMENTS}
    TIMEOUT ${arg_TIMEOUT}
  )
endfunction()

# tutti_mpi_runs_of(<name> [RANKS <count>...] [GPU_RANKS <count>...] [PLACES <hosts of ranks>...] [ARGUMENTS <argument>...]
#                   [TIMEOUT <seconds>])
#
# Registers one ctest entry of test_mpi_<name> for each number of ranks, named host.mpi.<name>.<count> and labelled mpi. All
# ranks run the same tests; a failure on any of them is a failure of the entry. GPU_RANKS are the same on GPUs,
# cuda.mpi.<name>.<count>, which share them where they are more: that is slow, and as exact, and they wait for their turns. Each
# of PLACES, one character per rank, is one more entry, whose ranks pretend to be on these hosts: 0010 are four ranks on two.
function(tutti_mpi_runs_of name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "RANKS;GPU_RANKS;PLACES;ARGUMENTS")
  set(run ${PROJECT_SOURCE_DIR}/tests/mpi/run_ranks)
  set(program $<TARGET_FILE:test_mpi_${name}> --gtest_brief=1 ${arg_ARGUMENTS})
  foreach(count IN LISTS arg_RANKS)
    tutti_mpi_run(host.mpi.${name}.${count} RANKS ${count} TIMEOUT ${arg_TIMEOUT} COMMAND ${run} ${count} ${program})
  endforeach()
  foreach(count IN LISTS arg_GPU_RANKS)
    tutti_mpi_run(
      cuda.mpi.${name}.${count}
      BACKEND cuda
      RANKS ${count}
      TIMEOUT ${arg_TIMEOUT}
      LABELS multi_gpu forks
      COMMAND ${run} ${count} ${program}
    )
  endforeach()
  foreach(places IN LISTS arg_PLACES)
    string(LENGTH ${places} count)
    tutti_mpi_run(
      host.mpi.${name}.hosts_${places}
      RANKS ${count}
      TIMEOUT ${arg_TIMEOUT}
      PLACES ${places}
      COMMAND ${run} ${count} ${program}
    )
  endforeach()
endfunction()

# tutti_mpi_run(<test name> RANKS <count> COMMAND <command>... [BACKEND host|cuda] [PLACES <hosts of ranks>]
#               [WAITS] [LABELS <label>...] [TIMEOUT <seconds>])
#
# One ctest entry: a command that starts RANKS ranks at a time, by default on virtual devices, by tests/mpi/run_ranks.
# Where there is no mpirun, or the build lacks the backend, it is not registered. To ctest, it takes two processors for
# each rank, two in all if it WAITS, and four on GPUs, as tutti_test says.
function(tutti_mpi_run test_name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "WAITS" "RANKS;BACKEND;PLACES;TIMEOUT" "COMMAND;LABELS")
  if(NOT arg_BACKEND)
    set(arg_BACKEND host)
  endif()
  if(NOT MPIEXEC_EXECUTABLE OR (arg_BACKEND STREQUAL cuda AND NOT TUTTI_HAS_CUDA))
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${TUTTI_TEST_TIMEOUT_SCALE}")
  set(processors 2)
  if(arg_BACKEND STREQUAL cuda)
    set(processors 4)
  elseif(NOT arg_WAITS)
    math(EXPR processors "2 * ${arg_RANKS}")
  endif()
  set(environment TUTTI_BACKEND=${arg_BACKEND} TUTTI_TEST_TIMEOUT=${arg_TIMEOUT} MPIRUN=${MPIEXEC_EXECUTABLE})
  if(arg_PLACES)
    list(APPEND environment HOST_OF_RANK=${arg_PLACES})
  endif()
  add_test(NAME ${test_name} COMMAND ${arg_COMMAND})
  set_tests_properties(
    ${test_name}
    PROPERTIES
      ENVIRONMENT "${environment}"
      TIMEOUT ${arg_TIMEOUT}
      COST ${arg_TIMEOUT}
      PROCESSORS ${processors}
      FAIL_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests"
      LABELS "${arg_BACKEND};mpi;${arg_LABELS}"
  )
  if(arg_BACKEND STREQUAL cuda AND NOT TUTTI_TEST_SHARED_GPUS)
    set_tests_properties(${test_name} PROPERTIES RESOURCE_LOCK gpus)
  endif()
endfunction()

# tutti_sanitized_test(<name> TOOL memcheck|racecheck TARGET <test program> FILTER <tests> [RANKS <count>]
#                      [ENVIRONMENT <variable=value>...])
#
# Four ctest entries, each with its share of the program's tests, under a tool of compute-sanitizer, named <tool>.<name>.<number>
# and labelled cuda: of RANKS that mpirun starts, each under its own.
function(tutti_sanitized_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TOOL;TARGET;FILTER;RANKS" "ENVIRONMENT")
  set(command compute-sanitizer --tool ${arg_TOOL})
  list(APPEND command --error-exitcode 99 --print-limit 20)
  if(arg_TOOL STREQUAL memcheck)
    list(APPEND command --report-api-errors no)
  endif()
  if(arg_RANKS)
    list(PREPEND command ${PROJECT_SOURCE_DIR}/tests/mpi/run_ranks ${arg_RANKS})
  endif()
  math(EXPR timeout "120 * ${TUTTI_TEST_TIMEOUT_SCALE}")
  set(shards 4)
  foreach(shard RANGE 1 ${shards})
    math(EXPR index "${shard} - 1")
    set(test_name ${arg_TOOL}.${name}.${shard})
    add_test(
      NAME ${test_name}
      COMMAND ${command} $<TARGET_FILE:${arg_TARGET}> --gtest_brief=1 --gtest_filter=${arg_FILTER}
    )
    set_tests_properties(
      ${test_name}
      PROPERTIES
        ENVIRONMENT "TUTTI_BACKEND=cuda;GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index};${arg_ENVIRONMENT}"
        TIMEOUT ${timeout}
        COST ${timeout}
        PROCESSORS 2
        FAIL_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests"
        LABELS cuda
    )
    if(NOT TUTTI_TEST_SHARED_GPUS)
      set_tests_properties(${test_name} PROPERTIES RESOURCE_LOCK gpus)
    endif()
  endforeach()
endfunction()
