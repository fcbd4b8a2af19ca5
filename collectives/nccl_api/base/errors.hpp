// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"
#include "tutti/nccl_api.h"

#include <string>
#include <utility>

/// The C interface: every exported function turns what is thrown into a result and a sentence.
namespace tutti::nccl_api {

/// Carries a result of the interface with the sentence that `ncclGetLastError` returns.
struct Refusal {
  ncclResult_t result = ncclInvalidArgument;
  std::string sentence;
};

/// Returns the result that stands for an error.
[[nodiscard]] ncclResult_t result_of(ErrorCode code) noexcept;
/// Keeps the sentence as the process's last error, and returns `result`.
ncclResult_t remember(ncclResult_t result, const char* sentence) noexcept;
/// Remembers the exception that is being handled, and returns the result that stands for it.
[[nodiscard]] ncclResult_t handled() noexcept;
/// Returns a copy of the last error that is valid until the calling thread's next call.
[[nodiscard]] const char* last_error() noexcept;
/// Says that the process has something that no child of it can use: a meeting, memory or a communicator.
void note_use() noexcept;
/// Throws Error(unsupported) in a child that was forked off after that.
void refuse_forked_child(const char* function);

/// Calls `work`; nothing that it throws passes on.
template <class Work>
ncclResult_t guarded(const char* function, Work&& work) noexcept {
  try {
    refuse_forked_child(function);
    std::forward<Work>(work)();
    return ncclSuccess;
  } catch (...) {
    return handled();
  }
}

/// Throws a `Refusal` if the argument is a null pointer.
void require(const char* function, const void* pointer, const char* argument);

}  // namespace tutti::nccl_api
