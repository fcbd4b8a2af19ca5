// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/nccl/connection.hpp"
#include "transport/nccl/library.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tutti::transport::nccl {

/// Owns NCCL's communicators of one set of devices, by rank. Destroyed with the last plan that uses them.
class Clique final : public Connection {
 public:
  /// Connects the `devices`, which are in ascending order. May take seconds. Throws Error(transport_failure).
  Clique(Runtime& runtime, const Library& library, const std::vector<int>& devices);
  Clique(const Clique&) = delete;
  Clique& operator=(const Clique&) = delete;
  ~Clique() override;

  void enqueue(const CallList& list, const Binding& binding) override;

 private:
  void enqueue(const Call& call, const CallList& list, const Binding& binding) const;
  /// Throws Error(transport_failure) if a communicator has reported a failure of enqueued work. Costs a few
  /// loads.
  void check_asynchronous_errors() const;
  [[nodiscard]] ncclResult_t asynchronous_error(ncclComm_t communicator) const;

  Runtime& runtime_;
  const Library& library_;
  std::vector<int> devices_;
  std::vector<ncclComm_t> communicators_;
};

/// Creates the cliques of a runtime when they are first needed. A part of the runtime; thread-safe.
class Cliques {
 public:
  explicit Cliques(Runtime& runtime) : runtime_(runtime) {}

  /// Returns why `devices` cannot be connected; empty if they are. Connecting is tried once: a failure, which
  /// may take seconds and is logged, is remembered.
  [[nodiscard]] std::string refusal(const std::vector<int>& devices);
  /// Returns the clique of devices that are not refused.
  [[nodiscard]] std::shared_ptr<Clique> of(const std::vector<int>& devices);

 private:
  struct Entry {
    std::shared_ptr<Clique> clique;
    std::string failure;
  };
  [[nodiscard]] const Entry& entry(const std::vector<int>& devices);

  Runtime& runtime_;
  std::mutex mutex_;
  std::map<std::vector<int>, Entry> entries_;
};

}  // namespace tutti::transport::nccl
