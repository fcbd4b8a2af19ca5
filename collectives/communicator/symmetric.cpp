// SPDX-License-Identifier: Apache-2.0
#include "tutti/symmetric.hpp"

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/symmetric_call.hpp"
#include "device/blocking_call.hpp"
#include "stream/stream_access.hpp"
#include "transport/team/symmetric/symmetric_allocation.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti {
namespace {

using transport::team::SymmetricAllocation;

template <class... Values>
[[noreturn]] void refuse_use(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("SymmetricMemory: {}", fmt::format(format, std::forward<Values>(values)...)));
}

std::size_t checked_local(const SymmetricAllocation& allocation, int local) {
  const std::size_t count = allocation.tensors().size();
  if (local < 0 || static_cast<std::size_t>(local) >= count)
    refuse_use("local is {}, expected a local member: 0 to {}", local, count - 1);
  return static_cast<std::size_t>(local);
}

void check_patience(std::optional<std::chrono::milliseconds> patience) {
  if (patience && patience->count() <= 0)
    refuse_use("patience is {} ms, expected more than 0", patience->count());
}

}  // namespace

SymmetricMemory Communicator::symmetric(IntList sizes, DType dtype) {
  const BlockingCall blocks("Communicator::symmetric");
  return SymmetricMemory(collectives::SymmetricCall(*impl().context, sizes, dtype).run());
}

SymmetricMemory::SymmetricMemory() noexcept = default;
SymmetricMemory::SymmetricMemory(std::shared_ptr<SymmetricAllocation> allocation) noexcept
    : allocation_(std::move(allocation)) {}
SymmetricMemory::SymmetricMemory(SymmetricMemory&& other) noexcept = default;
SymmetricMemory& SymmetricMemory::operator=(SymmetricMemory&& other) noexcept {
  std::swap(allocation_, other.allocation_);
  return *this;
}
SymmetricMemory::~SymmetricMemory() = default;

SymmetricAllocation& SymmetricMemory::allocation() const {
  if (allocation_ == nullptr) refuse_use("it is empty, expected one from Communicator::symmetric");
  if (allocation_->is_over()) refuse_use("its communicator has been destroyed, expected one that exists");
  return *allocation_;
}

void SymmetricMemory::release() {
  if (allocation_ == nullptr) return;
  const BlockingCall blocks("SymmetricMemory::release");
  const std::shared_ptr<SymmetricAllocation> released = std::exchange(allocation_, nullptr);
  if (released->is_over()) return;
  released->begin_release();
  const std::chrono::milliseconds timeout = released->settings().timeout;
  if (!released->await_own_release(timeout)) {
    throw Error(ErrorCode::timeout,
                fmt::format("SymmetricMemory: work of this rank that uses it has not ended after {} ms",
                            timeout.count()));
  }
  const std::vector<std::size_t> users = released->await_all([](std::size_t) { return false; });
  if (!users.empty()) {
    throw Error(ErrorCode::timeout,
                fmt::format("SymmetricMemory: not released by ranks {} in {}", fmt::join(users, ", "),
                            released->has_ended() ? "a second after the communicator has ended"
                                                  : fmt::format("{} ms", timeout.count())));
  }
  released->free_released();
}

const std::vector<Tensor>& SymmetricMemory::tensors() const {
  return allocation().tensors();
}
const Tensor& SymmetricMemory::tensor(int local) const {
  return allocation().tensors()[checked_local(allocation(), local)];
}

void* SymmetricMemory::peer_data(int member, int local) const {
  const std::vector<std::byte*>& peers = allocation().peers(checked_local(allocation(), local));
  if (member < 0 || static_cast<std::size_t>(member) >= peers.size())
    refuse_use("member is {}, expected 0 to {}", member, peers.size() - 1);
  return peers[static_cast<std::size_t>(member)];
}

SymmetricView SymmetricMemory::view(int local, std::optional<std::chrono::milliseconds> patience) const {
  const std::size_t checked = checked_local(allocation(), local);
  check_patience(patience);
  if (!allocation().has_gpus()) {
    throw Error(ErrorCode::unsupported,
                "SymmetricMemory: view is for GPUs: kernels of virtual devices get it from "
                "virtual_devices::launch");
  }
  return allocation().view(checked, patience);
}

void SymmetricMemory::record_stream(const Stream& stream) const {
  allocation().record_stream(StreamAccess::ref(stream));
}

namespace virtual_devices {

void launch(const Stream& stream, std::string_view name, const SymmetricMemory& memory,
            std::span<const Access> accesses,
            std::function<void(const SymmetricView& view, std::span<void* const> addresses)> kernel,
            std::optional<std::chrono::milliseconds> patience) {
  SymmetricAllocation& allocation = memory.allocation();
  check_patience(patience);
  const auto tensor = std::ranges::find_if(
      allocation.tensors(), [&](const Tensor& own) { return own.device().index() == stream.device(); });
  if (tensor == allocation.tensors().end())
    refuse_use("stream is of {}, expected a stream of a local member's device",
               to_string(Device(stream.device())));
  const auto local = static_cast<std::size_t>(tensor - allocation.tensors().begin());
  SymmetricView view = allocation.view(local, patience);
  std::vector<Access> all;
  for (const std::byte* const peer : allocation.peers(local))
    all.push_back({.address = peer, .bytes = view.all_bytes(), .use = Access::Use::unchecked});
  all.insert(all.end(), accesses.begin(), accesses.end());
  launch(stream, name, all, [view, kernel = std::move(kernel)](std::span<void* const> addresses) {
    std::vector<std::byte*> peers;
    for (void* const peer : addresses.first(view.member_count))
      peers.push_back(static_cast<std::byte*>(peer));
    SymmetricView usable = view;
    usable.peers = peers.data();
    kernel(usable, addresses.subspan(view.member_count));
  });
  allocation.record_stream(StreamAccess::ref(stream));
}

}  // namespace virtual_devices
}  // namespace tutti
