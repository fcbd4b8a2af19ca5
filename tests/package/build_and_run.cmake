# SPDX-License-Identifier: Apache-2.0
# Configures, builds and runs the consumer project in `source`, which finds tutti in `prefix`; under `launcher`, if given. More
# arguments of CMake are in `arguments`; if it has to refuse them with a message, this is `refusal`.
function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

separate_arguments(arguments UNIX_COMMAND "${arguments}")
set(
  configure
  ${CMAKE_COMMAND}
  -S
  ${source}
  -B
  ${binary}
  -G
  ${generator}
  -D
  CMAKE_PREFIX_PATH=${prefix}
  -D
  CMAKE_CXX_COMPILER=${compiler}
  -D
  CMAKE_CXX_FLAGS=${flags}
  -D
  CUDAToolkit_ROOT=${cuda_toolkit}
  # Nothing but the installed tree may answer.
  -D
  CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
  -D
  CMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH=OFF
  ${arguments}
)
if(refusal)
  execute_process(COMMAND ${configure} RESULT_VARIABLE status ERROR_VARIABLE error)
  # CMake breaks its lines where they have become too long, which depends on the folder.
  string(REGEX REPLACE "[ \n]+" " " error "${error}")
  if(status EQUAL 0 OR NOT error MATCHES "${refusal}")
    message(FATAL_ERROR "Expected '${refusal}', not status ${status} and: ${error}")
  endif()
  return()
endif()
step(${configure})
step(${CMAKE_COMMAND} --build ${binary})
separate_arguments(launcher UNIX_COMMAND "${launcher}")
step(${launcher} ${binary}/consumer)
