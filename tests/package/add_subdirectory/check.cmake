# SPDX-License-Identifier: Apache-2.0
# Configures the project here, which has `tutti` as a part, and sees that it installs nothing unless asked to.
set(project ${binary}/project)
file(MAKE_DIRECTORY ${project})
file(CREATE_LINK ${source}/CMakeLists.txt ${project}/CMakeLists.txt SYMBOLIC)
file(CREATE_LINK ${source}/../consumer.cpp ${project}/consumer.cpp SYMBOLIC)
file(CREATE_LINK ${tutti} ${project}/tutti SYMBOLIC)
set(
  configure
  ${CMAKE_COMMAND}
  -S
  ${project}
  -B
  ${binary}
  -G
  ${generator}
  -D
  CMAKE_CXX_COMPILER=${compiler}
  -D
  CMAKE_CXX_FLAGS= # nor from the environment
  -D
  CMAKE_BUILD_TYPE=
  -D
  TUTTI_CUDA=${cuda}
  -D
  TUTTI_MPI=${mpi}
  -D
  TUTTI_DLPACK_INCLUDE_DIR=${dlpack}
  -D
  block=${source}/../block.cmake
  -D
  PAGE=${tutti}/docs/building.md
)
if(cuda)
  list(APPEND configure -D CMAKE_CUDA_COMPILER=${cuda_compiler})
endif()
function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# How a source of tutti and one of the parent are optimised when the parent is configured with these arguments:
# expect_optimised(<of tutti> <of the parent> <SAID or UNSAID> <argument>...)
function(expect_optimised of_tutti of_parent said)
  execute_process(
    COMMAND ${configure} -D CMAKE_EXPORT_COMPILE_COMMANDS=ON ${ARGN}
    COMMAND_ERROR_IS_FATAL ANY
    OUTPUT_VARIABLE output
  )
  file(READ ${binary}/compile_commands.json commands)
  foreach(of IN ITEMS tutti parent)
    set(source_of_tutti "/src/base/version.cpp")
    set(source_of_parent "/consumer.cpp")
    string(REGEX MATCH "\"command\": \"[^\n]*${source_of_${of}}\"" command "${commands}")
    string(REGEX MATCHALL " (-O[^ ]*|-DNDEBUG)" options "${command}")
    list(JOIN options "" options)
    string(STRIP "${options}" options)
    if(NOT command OR NOT options STREQUAL of_${of})
      message(FATAL_ERROR "Configured with '${ARGN}', ${of} is built with '${options}', not '${of_${of}}': ${command}")
    endif()
  endforeach()
  set(was_said UNSAID)
  if(output MATCHES "tutti: parent has no build type; tutti is optimised all the same [^\n]*-DCMAKE_BUILD_TYPE=Release")
    set(was_said SAID)
  endif()
  if(NOT was_said STREQUAL said)
    message(FATAL_ERROR "Configured with '${ARGN}', that there is no build type is ${was_said}: ${output}")
  endif()
endfunction()

step(${configure})
step(
  ${CMAKE_COMMAND}
  --install
  ${binary}
  --prefix
  ${binary}/prefix
)
if(EXISTS ${binary}/prefix)
  message(FATAL_ERROR "Something was installed below ${binary}/prefix")
endif()

step(${configure} -D TUTTI_INSTALL=ON)
file(READ ${binary}/tutti/cmake_install.cmake rules)
if(NOT rules MATCHES tuttiTargets)
  message(FATAL_ERROR "With TUTTI_INSTALL, nothing would be installed")
endif()

expect_optimised("-DNDEBUG -O3" "" SAID)
expect_optimised("-O1" "-O1" UNSAID -D CMAKE_CXX_FLAGS=-O1)
expect_optimised("-Og" "-Og" UNSAID -D CMAKE_CXX_FLAGS= -D options_of_parent=-Og)
expect_optimised("" "" UNSAID -D CMAKE_BUILD_TYPE=Debug -D options_of_parent=)
expect_optimised("-O3 -DNDEBUG" "-O3 -DNDEBUG" UNSAID -D CMAKE_BUILD_TYPE=Release)

if(cuda)
  execute_process(COMMAND ${configure} -D TUTTI_CUDA_ARCHITECTURES=60 RESULT_VARIABLE status ERROR_VARIABLE error)
  if(status EQUAL 0 OR NOT error MATCHES "need sm_70 or newer, not 60")
    message(FATAL_ERROR "Kernels for sm_60 were not refused: ${status}, ${error}")
  endif()
endif()
