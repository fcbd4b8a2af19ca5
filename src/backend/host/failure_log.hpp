#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

namespace tutti::backend::host {

/// Failures of one device's asynchronous work, kept until a synchronising call reports them. Thread-safe.
class FailureLog {
 public:
  void add(std::string message) noexcept;
  /// Throws Error(device_failure) with the first failure and the number of later ones, and forgets them;
  /// returns if there are none.
  void report();

 private:
  std::atomic<bool> pending_{false};
  std::mutex mutex_;
  std::string first_;
  std::size_t later_ = 0;
};

}  // namespace tutti::backend::host
