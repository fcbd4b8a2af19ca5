// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/nccl_library.hpp"
#include "tutti/nccl_api.h"

/// Calls NCCL's own functions.
namespace tutti::nccl_api {

/// Returns NCCL's function of the name, whose type is that of tutti's own. Throws a `Refusal` if NCCL is not
/// there, or is too old for it.
template <auto Own>
[[nodiscard]] auto nccl_function(const char* function) {
  static const auto found = reinterpret_cast<decltype(Own)>(NcclLibrary::get().find(function));
  return found;
}
template <auto Own, class... Arguments>
auto call_nccl(const char* function, Arguments... arguments) {
  return nccl_function<Own>(function)(arguments...);
}

/// Throws a `Refusal` with NCCL's own words unless the result is success. `nccl` is NCCL's handle, or null.
void require_success_of_nccl(const char* function, ncclResult_t result, ncclComm_t nccl);

/// Makes the calls of a scope a group of NCCL's.
class NcclGroup {
 public:
  NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  /// Ends the group without a word.
  ~NcclGroup();
  /// Throws a `Refusal` if a call has failed: NCCL drops the group then.
  void take(const char* function, ncclComm_t nccl, ncclResult_t result) const {
    require_success_of_nccl(function, result, nccl);
  }
  /// Carries the calls out. Throws a `Refusal` if that fails.
  void end();

 private:
  bool has_ended_ = false;
};

}  // namespace tutti::nccl_api
