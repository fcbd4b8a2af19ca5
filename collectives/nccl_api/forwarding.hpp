// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/group.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/nccl_calls.hpp"

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Has NCCL make the calls of the interface for communicators that it carries.
namespace tutti::nccl_api {

/// Returns whether NCCL carries the communicator; false for what is none.
[[nodiscard]] inline bool is_of_nccl(ncclComm_t comm) noexcept {
  return comm != nullptr && comm->mark == ncclComm::live && comm->nccl != nullptr;
}

/// Returns an argument as NCCL has to get it: for a communicator, its own handle.
template <class Argument>
[[nodiscard]] Argument for_nccl(Argument argument) noexcept {
  return argument;
}
[[nodiscard]] inline ncclComm_t for_nccl(ncclComm_t comm) noexcept {
  return comm->nccl;
}

/// An argument of a call that a group makes later, as NCCL has to get it: of a communicator, NCCL's handle,
/// for tutti's may be gone by then; of a configuration, a copy.
template <class Argument>
struct Kept {
  Argument value;
  // NOLINTNEXTLINE(google-explicit-constructor): made from the argument
  Kept(Argument argument) : value(for_nccl(argument)) {}
  [[nodiscard]] Argument get() const noexcept { return value; }
};
template <>
struct Kept<const ncclCollConfig_t*> {
  std::vector<std::byte> bytes;
  // NOLINTNEXTLINE(google-explicit-constructor): made from the argument, as the others are
  Kept(const ncclCollConfig_t* config) : bytes(config == nullptr ? 0 : config->size) {
    if (config != nullptr) std::memcpy(bytes.data(), config, bytes.size());
  }
  [[nodiscard]] const ncclCollConfig_t* get() const noexcept {
    return bytes.empty() ? nullptr : reinterpret_cast<const ncclCollConfig_t*>(bytes.data());
  }
};

/// Makes NCCL's call for the communicator at once.
template <auto Own, class... Arguments>
void forward_now(const char* function, ncclComm_t comm, Arguments... arguments) {
  const ncclComm_t nccl = comm->nccl;  // an abort frees the handle
  require_success_of_nccl(function, call_nccl<Own>(function, for_nccl(arguments)...), nccl);
}

/// Makes NCCL's call for the communicator when the thread's group ends, or at once outside a group.
template <auto Own, class... Arguments>
void forward(const char* function, ncclComm_t comm, Arguments... arguments) {
  if (!Group::of_thread().is_open()) return forward_now<Own>(function, comm, arguments...);
  static_cast<void>(nccl_function<Own>(function));  // a function that NCCL lacks fails the group now
  auto kept = std::make_tuple(Kept<Arguments>{arguments}...);
  Group::of_thread().add(Forwarded{
      .function = function, .comm = comm, .call = [function, kept = std::move(kept)] {
        return std::apply([&](const auto&... all) { return call_nccl<Own>(function, all.get()...); }, kept);
      }});
}

/// Returns the communicator among the arguments.
template <class First, class... Rest>
[[nodiscard]] ncclComm_t communicator_of(First first, Rest... rest) noexcept {
  if constexpr (std::is_same_v<First, ncclComm_t>) {
    return first;
  } else {
    return communicator_of(rest...);
  }
}

/// Does what an exported function does: has NCCL make the call if it carries the communicator, else calls
/// `work`. An error inside a group fails the group.
template <auto Own, class Work, class... Arguments>
ncclResult_t called(const char* function, Work&& work, Arguments... arguments) noexcept {
  const ncclResult_t result = guarded(function, [&] {
    const ncclComm_t comm = communicator_of(arguments...);
    if (is_of_nccl(comm)) [[unlikely]]
      return forward<Own>(function, comm, arguments...);
    std::forward<Work>(work)();
  });
  if (result != ncclSuccess) Group::of_thread().fail(result);
  return result;
}

/// Does the same where it is known that NCCL carries the communicator.
template <auto Own, class... Arguments>
ncclResult_t forwarded(const char* function, Arguments... arguments) noexcept {
  return called<Own>(
      function, [] {}, arguments...);
}

/// Does the same for a function that no group delays.
template <auto Own, class Work, class... Arguments>
ncclResult_t called_now(const char* function, Work&& work, Arguments... arguments) noexcept {
  return guarded(function, [&] {
    const ncclComm_t comm = communicator_of(arguments...);
    if (is_of_nccl(comm)) return forward_now<Own>(function, comm, arguments...);
    std::forward<Work>(work)();
  });
}

}  // namespace tutti::nccl_api
