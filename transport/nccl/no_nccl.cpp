// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/nccl.hpp"
#include "tutti/error.hpp"

namespace tutti::transport::nccl {

std::string absence(Runtime& runtime) {
  return runtime.backend().kind() == BackendKind::cuda ? "this build of tutti has no NCCL"
                                                       : "the devices are virtual";
}

Availability availability(Runtime& runtime) {
  return {false, "not available: " + absence(runtime)};
}

std::string refusal(Runtime& runtime, const Problem& /*problem*/) {
  return availability(runtime).detail;
}

Plan lower(Runtime& runtime, const Problem& /*problem*/) {
  throw Error(ErrorCode::unsupported, "nccl::lower: " + availability(runtime).detail);
}

}  // namespace tutti::transport::nccl
