// SPDX-License-Identifier: Apache-2.0
// Takes the place of cuda_kernels.cu in a build without CUDA, where there are virtual devices only.

#include "kernels.hpp"
#include "tutti/error.hpp"

const Kernels& cuda_kernels() {
  throw tutti::Error(tutti::ErrorCode::unsupported, "this program was built without CUDA");
}
