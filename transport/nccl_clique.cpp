// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl_clique.hpp"

#include "log.hpp"
#include "tutti/error.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::transport::nccl {

Clique::Clique(const Library& library, const std::vector<int>& devices)
    : library_(library), devices_(devices), communicators_(devices.size()) {
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
  const auto [found, is_new] = entries_.try_emplace(devices);
  Entry& entry = found->second;
  if (!is_new) return entry;
  try {
    entry.clique = std::make_shared<const Clique>(Library::get(), devices);
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

std::shared_ptr<const Clique> Cliques::of(const std::vector<int>& devices) {
  const std::lock_guard lock(mutex_);
  return entry(devices).clique;
}

}  // namespace tutti::transport::nccl
