// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/errors.hpp"
#include "transport/nccl/library_paths.hpp"

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  return tutti::nccl_api::guarded("ncclGetVersion", [&] {
    tutti::nccl_api::require("ncclGetVersion", version, "version");
    *version = NCCL_VERSION_CODE;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a device has failed, or has no memory left";
    case ncclSystemError:
      return "a call of the operating system or of a transport has failed";
    case ncclInternalError:
      return "an invariant of the library is broken";
    case ncclInvalidArgument:
      return "an argument is invalid";
    case ncclInvalidUsage:
      return "the call is not possible here, or ranks have called differently";
    case ncclRemoteError:
      return "another rank has gone or given up, or cannot be reached";
    case ncclInProgress:
      return "the call is in progress";
    case ncclTimeout:
      return "another rank is late or gives no sign of life";
    default:
      return tutti::transport::nccl::mark_of_tutti.data();
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return tutti::nccl_api::last_error();
}

#pragma GCC visibility push(default)
void ncclResetDebugInit() {}
void ncclResetDebugInitInternal() {}
#pragma GCC visibility pop

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
