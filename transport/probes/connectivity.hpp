// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/probes/self_test.hpp"
#include "tutti/topology.hpp"

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport {

/// Finds out which pairs of devices can access each other directly. A part of the runtime; thread-safe.
///
/// Testing waits for the device and allocates memory: on GPUs it breaks a stream capture that prohibits such
/// calls to its thread. Ask about the pairs once before such a capture; answers are cached.
class Connectivity {
 public:
  explicit Connectivity(Runtime& runtime);
  Connectivity(const Connectivity&) = delete;
  Connectivity& operator=(const Connectivity&) = delete;
  ~Connectivity();

  /// Returns what the system reports and what is known, without testing.
  [[nodiscard]] PeerLink link(int device, int peer) const;

  /// Returns true if `device` may read and write the memory of `peer` (true for itself): peer access is
  /// reported, could be enabled and passed the self-test. The first question about an untested pair tests it,
  /// together with all untested pairs of `among`, in a few milliseconds; a pair that fails is refused for
  /// good, with one log line. Cached answers cost one atomic load.
  ///
  /// If there is no memory for the test, it logs that once, returns false, and tests at the next question.
  /// Passes on failures of the devices that have nothing to do with the test.
  [[nodiscard]] bool direct(int device, int peer, std::span<const int> among);

  /// Tests every untested pair of the devices `among`, in both directions.
  void test(std::span<const int> among);

  /// Returns why a pair is not direct, for `explain` and logs; empty if it is.
  [[nodiscard]] std::string reason(int device, int peer) const;

 private:
  [[nodiscard]] std::size_t index(int device, int peer) const noexcept;
  [[nodiscard]] PeerState state(int device, int peer) const noexcept;

  // `test_mutex_` must be held.
  [[nodiscard]] std::vector<DevicePair> enable_untested(std::span<const int> among);
  void create_streams(std::span<const DevicePair> pairs);
  void settle(DevicePair pair, PeerState state, const std::string& reason);

  Runtime& runtime_;
  int count_;
  std::vector<PeerLink> links_;
  std::vector<std::atomic<PeerState>> states_;
  mutable std::mutex test_mutex_;
  std::vector<std::string> reasons_;         ///< of pairs refused by this class; guarded by `test_mutex_`
  std::vector<backend::StreamRef> streams_;  ///< by device, made when first needed; guarded by `test_mutex_`
  bool told_of_shortage_ = false;            ///< guarded by `test_mutex_`
};

}  // namespace tutti::transport
