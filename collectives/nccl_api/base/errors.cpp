// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/errors.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>

#include <fmt/format.h>
#include <pthread.h>

namespace tutti::nccl_api {
namespace {

using Sentence = std::array<char, 2048>;

struct LastError {
  std::mutex mutex;
  Sentence sentence{};
};

/// Never destroyed: threads may fail while the process exits.
LastError& the_last_error() {
  static LastError& last = *new LastError();
  return last;
}

std::atomic<bool> is_used{false};
std::atomic<bool> is_forked{false};

const int marks_children = pthread_atfork(nullptr, nullptr, [] { is_forked.store(is_used.load()); });

}  // namespace

ncclResult_t result_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return ncclInvalidArgument;
    case ErrorCode::out_of_memory:
    case ErrorCode::device_failure:
      return ncclUnhandledCudaError;
    case ErrorCode::unsupported:
      return ncclInvalidUsage;
    case ErrorCode::peer_unavailable:
    case ErrorCode::aborted:
      return ncclRemoteError;
    case ErrorCode::transport_failure:
      return ncclSystemError;
    case ErrorCode::timeout:
      return ncclTimeout;
    case ErrorCode::internal:
      break;
  }
  return ncclInternalError;
}

ncclResult_t remember(ncclResult_t result, const char* sentence) noexcept {
  if (is_forked.load(std::memory_order_relaxed)) return result;  // whoever held the lock is not here
  LastError& last = the_last_error();
  const std::lock_guard lock(last.mutex);
  const std::size_t length = std::min(std::strlen(sentence), last.sentence.size() - 1);
  std::memcpy(last.sentence.data(), sentence, length);
  last.sentence[length] = '\0';
  return result;
}

ncclResult_t handled() noexcept {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return remember(refusal.result, refusal.sentence.c_str());
  } catch (const Error& error) {
    return remember(result_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return remember(ncclSystemError, "the host has no memory left");
  } catch (const std::exception& error) {
    return remember(ncclInternalError, error.what());
  } catch (...) {
    return remember(ncclInternalError, "an exception of unknown type");
  }
}

const char* last_error() noexcept {
  thread_local Sentence copy{};
  if (is_forked.load(std::memory_order_relaxed))
    return "this process was forked off, and cannot use its parent's communicators";
  LastError& last = the_last_error();
  const std::lock_guard lock(last.mutex);
  copy = last.sentence;
  return copy.data();
}

void note_use() noexcept {
  is_used.store(true, std::memory_order_relaxed);
}

void refuse_forked_child(const char* function) {
  static_cast<void>(marks_children);
  if (!is_forked.load(std::memory_order_relaxed)) [[likely]]
    return;
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{}: this process was forked off after the library was loaded, expected the process "
                  "that loaded it",
                  function));
}

void require(const char* function, const void* pointer, const char* argument) {
  if (pointer != nullptr) return;
  throw Refusal{ncclInvalidArgument,
                fmt::format("{}: {} is a null pointer, expected an address", function, argument)};
}

}  // namespace tutti::nccl_api
