// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_library.hpp"

#include "perf/processes/failure.hpp"
#include "tutti/error.hpp"

#include <cstdlib>
#include <type_traits>

#include <dlfcn.h>
#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// Of the file that a function has been loaded from.
std::string path_of(const void* function, const char* otherwise) {
  Dl_info found{};
  return dladdr(function, &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : otherwise;
}

}  // namespace

NcclLibrary::NcclLibrary() {
  const char* const chosen = std::getenv("TUTTI_NCCL_LIBRARY");
  const char* const name = chosen != nullptr && *chosen != '\0' ? chosen : "libnccl.so.2";
  // Never closed: NCCL's threads may outlive this object.
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw UsageError(fmt::format("--peer nccl: {}", dlerror()));
  const auto find = [library](const char* function_name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, function_name));
  };
  const auto load = [&](const char* function_name, auto& function) {
    find(function_name, function);
    if (function == nullptr) throw UsageError(fmt::format("--peer nccl: {} has no {}", name, function_name));
  };
  load("ncclGetVersion", get_version);
  path_ = path_of(reinterpret_cast<const void*>(get_version), name);
  load("ncclGetErrorString", error_string);
  load("ncclGetUniqueId", get_unique_id);
  load("ncclCommInitRank", init_rank);
  load("ncclCommDestroy", destroy);
  load("ncclCommAbort", abort);
  load("ncclGroupStart", group_start);
  load("ncclGroupEnd", group_end);
  load("ncclBroadcast", broadcast);
  load("ncclReduce", reduce);
  load("ncclAllReduce", all_reduce);
  load("ncclAllGather", all_gather);
  load("ncclReduceScatter", reduce_scatter);
  load("ncclSend", send);
  load("ncclRecv", receive);
  load("ncclRedOpCreatePreMulSum", create_premul_sum);
  load("ncclRedOpDestroy", destroy_operation);
  find("ncclGetLastError", last_error);
  find("ncclMemAlloc", allocate);
  find("ncclMemFree", free);
  find("ncclCommRegister", add_buffer);
  find("ncclCommDeregister", remove_buffer);
  find("ncclCommWindowRegister", add_window);
  find("ncclCommWindowDeregister", remove_window);
}

int NcclLibrary::version() const {
  int version = 0;
  check(get_version(&version), "ncclGetVersion");
  return version;
}

std::string NcclLibrary::version_text() const {
  const int version = this->version();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void NcclLibrary::check(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess) return;
  std::string message = fmt::format("--peer nccl: {}: {}", what, error_string(result));
  const char* const cause = last_error != nullptr ? last_error(nullptr) : nullptr;
  if (cause != nullptr && *cause != '\0') message += fmt::format(" ({})", cause);
  throw Error(ErrorCode::transport_failure, message, static_cast<int>(result));
}

}  // namespace tutti::perf
