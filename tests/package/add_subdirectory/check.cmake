# Configures the project here, which has `tutti` as a part, and sees that it installs nothing unless asked to.
set(configure
    ${CMAKE_COMMAND}
    -S ${source}
    -B ${binary}
    -G ${generator}
    -D CMAKE_CXX_COMPILER=${compiler}
    -D TUTTI_CUDA=${cuda}
    -D TUTTI_MPI=${mpi}
    -D TUTTI_DLPACK_INCLUDE_DIR=${dlpack}
    -D tutti=${tutti})
if(cuda)
  list(APPEND configure -D CMAKE_CUDA_COMPILER=${cuda_compiler})
endif()
function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

step(${configure})
step(${CMAKE_COMMAND} --install ${binary} --prefix ${binary}/prefix)
if(EXISTS ${binary}/prefix)
  message(FATAL_ERROR "Something was installed below ${binary}/prefix")
endif()

step(${configure} -D TUTTI_INSTALL=ON)
file(READ ${binary}/tutti/cmake_install.cmake rules)
if(NOT rules MATCHES tuttiTargets)
  message(FATAL_ERROR "With TUTTI_INSTALL, nothing would be installed")
endif()

if(cuda)
  execute_process(COMMAND ${configure} -D TUTTI_CUDA_ARCHITECTURES=60 RESULT_VARIABLE status ERROR_VARIABLE error)
  if(status EQUAL 0 OR NOT error MATCHES "need sm_70 or newer, not 60")
    message(FATAL_ERROR "Kernels for sm_60 were not refused: ${status}, ${error}")
  endif()
endif()
