#include "transport/ranks/host_memory.hpp"

#include "transport/ranks/agreement.hpp"
#include "tutti/error.hpp"

#include <string>

namespace tutti::transport::ranks {

HostMemory::HostMemory(Runtime& runtime, Exchange& exchange, std::size_t bytes, std::size_t maker,
                       const std::function<void(std::byte*)>& begin)
    : runtime_(runtime) {
  const bool makes = static_cast<std::size_t>(exchange.rank()) == maker;
  std::string complaint;
  try {
    if (makes) {
      memory_ = SharedMemory(bytes);
      begin(memory_.data());
    }
  } catch (const Error& error) {
    complaint = error.what();
  }
  const SharedMemory::Handle handle = gather(exchange, memory_.handle())[maker];
  require_no_complaint(exchange, complaint);
  try {
    if (!makes) memory_ = SharedMemory(handle);
    runtime_.backend().register_pinned(memory_.data(), memory_.size());
    is_registered_ = true;
  } catch (const Error& error) {
    complaint = error.what();
  }
  try {
    require_no_complaint(exchange, complaint);
  } catch (...) {
    unregister();
    throw;
  }
  memory_.seal();
}

HostMemory::~HostMemory() {
  unregister();
}

void HostMemory::unregister() noexcept {
  if (is_registered_) runtime_.backend().unregister_pinned(memory_.data());
  is_registered_ = false;
}

}  // namespace tutti::transport::ranks
