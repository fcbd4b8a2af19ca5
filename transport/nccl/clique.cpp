// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/clique.hpp"

#include "device/blocking_call.hpp"
#include "device/peer_access.hpp"
#include "settings/log.hpp"
#include "stream/streams.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::transport::nccl {
namespace {

/// A group of NCCL calls. Between ncclGroupStart and ncclGroupEnd nothing runs; an error in between must
/// still end the group.
class Group {
 public:
  explicit Group(const Library& library) : library_(library) {
    library.check(library.functions().group_start(), "ncclGroupStart");
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (open_) static_cast<void>(library_.functions().group_end());
  }

  void end() {
    open_ = false;
    library_.check(library_.functions().group_end(), "ncclGroupEnd");
  }

 private:
  const Library& library_;
  bool open_ = true;
};

/// NCCL reads and writes tensors of other devices of its process itself. It sees to that only for memory that
/// the runtime allocates, not for ranges that get memory piece by piece.
void let_devices_access_one_another(Runtime& runtime, const std::vector<int>& devices) {
  for (const int device : devices) {
    for (const int peer : devices) {
      if (!runtime.backend().can_access_peer(device, peer)) continue;
      try {
        runtime.part<PeerAccess>().enable(device, peer);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::peer_unavailable) throw;  // NCCL goes another way then
      }
    }
  }
}

}  // namespace

Clique::Clique(Runtime& runtime, const Library& library, const std::vector<int>& devices)
    : runtime_(runtime), library_(library), devices_(devices), communicators_(devices.size()) {
  let_devices_access_one_another(runtime, devices);
  const std::lock_guard lock(library.group_mutex());
  library.check(library.functions().comm_init_all(communicators_.data(), static_cast<int>(devices.size()),
                                                  devices.data()),
                fmt::format("ncclCommInitAll of devices {}", fmt::join(devices, ", ")));
}

Clique::~Clique() {
  const bool failed = std::ranges::any_of(communicators_, [this](ncclComm_t communicator) {
    return asynchronous_error(communicator) != ncclSuccess;
  });
  // Destroying waits for queued work, which never ends on a communicator that failed.
  const auto end = failed ? library_.functions().comm_abort : library_.functions().comm_destroy;
  for (std::size_t rank = 0; rank < communicators_.size(); ++rank) {
    if (const ncclResult_t result = end(communicators_[rank]); result != ncclSuccess) {
      log_warning(fmt::format("an NCCL communicator of device {} could not be destroyed: {}", devices_[rank],
                              library_.functions().get_error_string(result)));
    }
  }
}

void Clique::enqueue(const CallList& list, const Binding& binding) {
  check_asynchronous_errors();
  // In this order, as teams take them.
  const std::lock_guard lock(library_.group_mutex());
  const auto gate = runtime_.part<Streams>().launch_together(devices_);
  std::size_t begin = 0;
  for (const std::size_t end : list.group_ends) {
    Group group(library_);
    for (std::size_t i = begin; i < end; ++i) enqueue(list.calls[i], list, binding);
    group.end();
    begin = end;
  }
  check_asynchronous_errors();
}

void Clique::enqueue(const Call& call, const CallList& list, const Binding& binding) const {
  const ncclComm_t communicator = communicators_[static_cast<std::size_t>(call.rank)];
  const ncclResult_t result = nccl::enqueue(library_.functions(), call, binding, communicator);
  if (result == ncclSuccess) return;
  const int device = list.devices[static_cast<std::size_t>(call.rank)];
  library_.check(result, fmt::format("{} on device {}", name_of(call.function), device), communicator);
}

void Clique::check_asynchronous_errors() const {
  for (std::size_t rank = 0; rank < communicators_.size(); ++rank) {
    const ncclResult_t result = asynchronous_error(communicators_[rank]);
    if (result == ncclSuccess) continue;
    library_.check(result, fmt::format("NCCL work on device {}", devices_[rank]), communicators_[rank]);
  }
}

ncclResult_t Clique::asynchronous_error(ncclComm_t communicator) const {
  ncclResult_t error = ncclSuccess;
  const ncclResult_t asked = library_.functions().comm_get_async_error(communicator, &error);
  if (asked != ncclSuccess) return asked;
  return error == ncclInProgress ? ncclSuccess : error;
}

const Cliques::Entry& Cliques::entry(const std::vector<int>& devices) {
  std::optional<BlockingCall> blocks;
  if (!entries_.contains(devices))
    blocks.emplace("the first call that NCCL may do among these devices, which connects it with them");
  const auto [found, is_new] = entries_.try_emplace(devices);
  Entry& entry = found->second;
  if (!is_new) return entry;
  try {
    entry.clique = std::make_shared<Clique>(runtime_, Library::get(), devices);
  } catch (const Error& error) {
    entry.failure = error.what();
    log_warning(
        fmt::format("NCCL is not used among devices {}: {}", fmt::join(devices, ", "), entry.failure));
  }
  return entry;
}

std::string Cliques::refusal(const std::vector<int>& devices) {
  const std::lock_guard lock(mutex_);
  return entry(devices).failure;
}

std::shared_ptr<Clique> Cliques::of(const std::vector<int>& devices) {
  const std::lock_guard lock(mutex_);
  return entry(devices).clique;
}

}  // namespace tutti::transport::nccl
