// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/team_nccl.hpp"

namespace tutti::transport::team {

std::unique_ptr<TeamNccl> TeamNccl::create(Runtime& runtime, Exchange& /*exchange*/, Team& /*team*/,
                                           std::string& reason) {
  reason = runtime.backend().kind() == BackendKind::cuda ? "this build of tutti has no NCCL"
                                                         : "the devices are virtual";
  return nullptr;
}

}  // namespace tutti::transport::team
