#include "transport/nccl.hpp"
#include "tutti/error.hpp"

namespace tutti::transport::nccl {

Availability availability(Runtime& runtime) {
  if (runtime.backend().kind() != BackendKind::cuda) return {false, "not available: the devices are virtual"};
  return {false, "not available: this build of tutti has no NCCL"};
}

std::string refusal(Runtime& runtime, const Problem& /*problem*/) {
  return availability(runtime).detail;
}

Plan lower(Runtime& runtime, const Problem& /*problem*/) {
  throw Error(ErrorCode::unsupported, "nccl::lower: " + availability(runtime).detail);
}

}  // namespace tutti::transport::nccl
