// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/nccl_calls.hpp"

#include "collectives/nccl_api/base/errors.hpp"

#include <fmt/format.h>

namespace tutti::nccl_api {

void require_success_of_nccl(const char* function, ncclResult_t result, ncclComm_t nccl) {
  if (result == ncclSuccess) return;
  const char* const what = call_nccl<&ncclGetErrorString>("ncclGetErrorString", result);
  const char* const cause = call_nccl<&ncclGetLastError>("ncclGetLastError", nccl);
  const bool has_cause = cause != nullptr && *cause != '\0';
  throw Refusal{result, has_cause ? fmt::format("{}: NCCL: {} ({})", function, what, cause)
                                  : fmt::format("{}: NCCL: {}", function, what)};
}

NcclGroup::NcclGroup() {
  require_success_of_nccl("ncclGroupStart", call_nccl<&ncclGroupStart>("ncclGroupStart"), nullptr);
}

NcclGroup::~NcclGroup() {
  if (!has_ended_) static_cast<void>(call_nccl<&ncclGroupEnd>("ncclGroupEnd"));
}

void NcclGroup::end() {
  has_ended_ = true;
  require_success_of_nccl("ncclGroupEnd", call_nccl<&ncclGroupEnd>("ncclGroupEnd"), nullptr);
}

}  // namespace tutti::nccl_api
