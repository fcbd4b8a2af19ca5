// SPDX-License-Identifier: Apache-2.0
#include "backend/host/memory/faults.hpp"

#include "tutti/error.hpp"

namespace tutti::backend::host {

using virtual_devices::Fault;
using virtual_devices::FaultKind;
using virtual_devices::Operation;

void Faults::inject(const Fault& fault) {
  const bool runs_on_a_stream = fault.operation == Operation::copy || fault.operation == Operation::kernel;
  if (fault.kind != FaultKind::fail && !runs_on_a_stream) {
    throw Error(ErrorCode::invalid_argument,
                "inject: only copies and kernels can fail asynchronously, be corrupted or be delayed");
  }
  const std::lock_guard lock(mutex_);
  faults_.push_back({fault});
  any_.store(true);
}

void Faults::clear() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  any_.store(false);
}

Faults::Disturbance Faults::disturb(Operation operation, int device, int peer) {
  Disturbance disturbance;
  if (!any()) return disturbance;
  const std::lock_guard lock(mutex_);
  for (ActiveFault& active : faults_) {
    if (active.fault.kind == FaultKind::corrupt || !hits(active, operation, device, peer)) continue;
    switch (active.fault.kind) {
      case FaultKind::fail:
        disturbance.refused = true;
        break;
      case FaultKind::fail_asynchronously:
        disturbance.failing = true;
        break;
      case FaultKind::delay:
        disturbance.delay += std::chrono::microseconds(active.fault.delay_microseconds);
        break;
      case FaultKind::corrupt:
        break;
    }
  }
  return disturbance;
}

bool Faults::corrupts(Operation operation, int device, int peer) {
  if (!any()) return false;
  const std::lock_guard lock(mutex_);
  bool corrupted = false;
  for (ActiveFault& active : faults_) {
    if (active.fault.kind == FaultKind::corrupt && hits(active, operation, device, peer)) corrupted = true;
  }
  return corrupted;
}

bool Faults::hits(ActiveFault& active, Operation operation, int device, int peer) {
  const Fault& fault = active.fault;
  const bool peer_counts = fault.kind == FaultKind::corrupt || fault.operation == Operation::enable_peer ||
                           fault.operation == Operation::open;
  if (fault.operation != operation) return false;
  if (fault.device && fault.device->index() != device) return false;
  if (peer_counts && fault.peer && fault.peer->index() != peer) return false;
  const std::uint64_t number = active.seen++;
  return number >= fault.skip && number - fault.skip < fault.count;
}

}  // namespace tutti::backend::host
