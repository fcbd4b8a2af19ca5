// SPDX-License-Identifier: Apache-2.0
// Takes the place of cuda_kernels.cu in a build without CUDA, where there are virtual devices only.

#include "kernels.hpp"
#include "tutti/error.hpp"

void optimizers::queue_on_gpu(const Step& /*step*/, const tutti::ParameterShard& /*shard*/) {
  throw tutti::Error(tutti::ErrorCode::unsupported, "this program was built without CUDA");
}
