// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nccl.h>

namespace tutti::perf {

/// The functions of libnccl, found at run time, so that the program starts without NCCL. It is the library
/// that tutti itself would load: the one that `TUTTI_NCCL_LIBRARY` names, else libnccl.so.2.
struct NcclLibrary {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetErrorString) error_string = nullptr;
  decltype(&::ncclGetLastError) last_error = nullptr;  ///< nullptr where there is none
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRank) init_rank = nullptr;
  decltype(&::ncclCommDestroy) destroy = nullptr;
  decltype(&::ncclCommAbort) abort = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclBroadcast) broadcast = nullptr;
  decltype(&::ncclReduce) reduce = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) receive = nullptr;
  decltype(&::ncclRedOpCreatePreMulSum) create_premul_sum = nullptr;
  decltype(&::ncclRedOpDestroy) destroy_operation = nullptr;

  // What older libraries, and older headers, do not have: nullptr there.
  ncclResult_t (*allocate)(void** memory, std::size_t bytes) = nullptr;                                // 2.19
  ncclResult_t (*free)(void* memory) = nullptr;                                                        // 2.19
  ncclResult_t (*add_buffer)(ncclComm_t, void* memory, std::size_t bytes, void** handle) = nullptr;    // 2.19
  ncclResult_t (*remove_buffer)(ncclComm_t, void* handle) = nullptr;                                   // 2.19
  ncclResult_t (*add_window)(ncclComm_t, void* memory, std::size_t bytes, void** window, int flags) =  // 2.27
      nullptr;
  ncclResult_t (*remove_window)(ncclComm_t, void* window) = nullptr;  // 2.27

  /// Loads the library. Throws UsageError if there is none, or if it lacks a function that is needed.
  NcclLibrary();

  /// Returns the version as a number, such as 22803.
  [[nodiscard]] int version() const;
  /// Returns the version as text, such as "2.28.3".
  [[nodiscard]] std::string version_text() const;
  /// Returns the file that has been loaded.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Throws Error(transport_failure) "--peer nccl: <what>: <NCCL's words>" unless `result` is success.
  void check(ncclResult_t result, const char* what) const;

 private:
  std::string path_;
};

}  // namespace tutti::perf
