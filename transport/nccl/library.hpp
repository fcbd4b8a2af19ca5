// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/nccl/calls.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>

#include <nccl.h>

namespace tutti::transport::nccl {

/// The functions of NCCL that the library uses, found at run time.
struct Functions {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetErrorString) get_error_string = nullptr;
  decltype(&::ncclGetLastError) get_last_error = nullptr;
  decltype(&::ncclCommInitAll) comm_init_all = nullptr;
  decltype(&::ncclCommDestroy) comm_destroy = nullptr;
  decltype(&::ncclCommAbort) comm_abort = nullptr;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclBroadcast) broadcast = nullptr;
  decltype(&::ncclReduce) reduce = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) receive = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
};

/// Makes the call on its lane's stream; reductions are sums.
[[nodiscard]] ncclResult_t enqueue(const Functions& nccl, const Call& call, const Binding& binding,
                                   ncclComm_t communicator);

/// Loads NCCL's shared library: the one that `TUTTI_NCCL_LIBRARY` names, else libnccl.so.2 where the loader
/// finds it. Loaded once per process and never unloaded. Thread-safe.
class Library {
 public:
  [[nodiscard]] static const Library& get();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] bool usable() const noexcept { return usable_; }
  /// Returns the version, or why the library cannot be used.
  [[nodiscard]] const std::string& detail() const noexcept { return detail_; }
  /// Returns the functions; valid if `usable`.
  [[nodiscard]] const Functions& functions() const noexcept { return functions_; }

  /// Returns the mutex that is held around groups of several devices and while their communicators are made:
  /// NCCL requires that groups which share devices have one order on all of them.
  [[nodiscard]] std::mutex& group_mutex() const noexcept { return group_mutex_; }

  /// Throws Error(transport_failure) "<call>: <NCCL's message>" unless `result` is success.
  void check(ncclResult_t result, std::string_view call, ncclComm_t communicator = nullptr,
             std::source_location where = std::source_location::current()) const;

 private:
  Library();

  /// Loads the library. Returns an empty string, or why it cannot be used.
  [[nodiscard]] std::string load(const std::string& path);

  Functions functions_;
  bool usable_ = false;
  std::string detail_;
  mutable std::mutex group_mutex_;
};

}  // namespace tutti::transport::nccl
