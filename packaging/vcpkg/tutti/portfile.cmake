# SPDX-License-Identifier: Apache-2.0
# The sources that this port lies in, three folders above.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

# Each option is ON or OFF, never AUTO: a port depends on nothing but what was asked for.
vcpkg_check_features(
  OUT_FEATURE_OPTIONS
  features
  FEATURES
  cuda
  TUTTI_CUDA
  cuda-libraries
  TUTTI_CUDA_LIBRARIES
  mpi
  TUTTI_MPI
  nccl
  TUTTI_NCCL
  nccl-api
  TUTTI_NCCL_API
  nvtx
  TUTTI_NVTX
)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${features} -DTUTTI_BUILD_TESTS=OFF -DTUTTI_BUILD_PERF=OFF -DTUTTI_BUILD_EXAMPLES=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME tutti CONFIG_PATH lib/cmake/tutti)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
