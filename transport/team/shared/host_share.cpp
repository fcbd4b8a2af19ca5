// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/host_share.hpp"

#include "transport/team/shared/agreement.hpp"

#include <exception>
#include <string>
#include <utility>

namespace tutti::transport::team {

HostShare::HostShare(Runtime& runtime, Exchange& exchange, std::size_t bytes, std::size_t maker,
                     const std::function<void(std::byte*)>& fill)
    : runtime_(runtime) {
  const bool makes = static_cast<std::size_t>(exchange.rank()) == maker;
  std::string complaint;
  try {
    if (makes) {
      memory_ = SharedMemory(bytes);
      fill(memory_.data());
    }
  } catch (const std::exception& error) {
    complaint = error.what();
  }
  SharedMemory::Handle handle;
  if (exchange.size() > 1) handle = gather(exchange, memory_.share(Audience::anyone))[maker];
  require_no_complaint(exchange, complaint);
  try {
    if (!makes) memory_ = SharedMemory::kept_open(handle);
    runtime_.backend().register_pinned(memory_.data(), memory_.size());
    is_registered_ = true;
  } catch (const std::exception& error) {
    complaint = error.what();
  }
  try {
    require_no_complaint(exchange, complaint);
  } catch (...) {
    unregister();
    throw;
  }
  memory_.withdraw();
}

HostShare::~HostShare() {
  unregister();
}

SharedMemory HostShare::release() noexcept {
  unregister();
  memory_.seal();
  return std::move(memory_);
}

void HostShare::unregister() noexcept {
  if (std::exchange(is_registered_, false)) runtime_.backend().unregister_pinned(memory_.data());
}

}  // namespace tutti::transport::team
