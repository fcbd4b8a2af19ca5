// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl.hpp"

#include "transport/launching.hpp"
#include "transport/nccl_calls.hpp"
#include "transport/nccl_clique.hpp"
#include "transport/nccl_library.hpp"
#include "transport/plan_builder.hpp"
#include "tutti/error.hpp"

#include <utility>

#include <fmt/format.h>

namespace tutti::transport::nccl {
namespace {

/// Between ncclGroupStart and ncclGroupEnd nothing runs; an error in between must still end the group.
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

/// Runs on the operands' own lanes, which therefore need no further order. It may be captured when all lanes
/// belong to one capture.
class GroupedCalls final : public Accelerated {
 public:
  GroupedCalls(const Library& library, std::shared_ptr<const Clique> clique, CallList list)
      : library_(library), clique_(std::move(clique)), list_(std::move(list)) {}

  void enqueue(const Binding& binding) const override {
    clique_->check_asynchronous_errors();
    for (const CopyStep& copy : list_.local_copies) {
      binding.backend.copy(binding.lanes[copy.lane], {.target = binding.at(copy.target),
                                                      .source = binding.at(copy.source),
                                                      .row_bytes = copy.row_bytes});
    }
    const std::lock_guard lock(library_.group_mutex());
    std::size_t begin = 0;
    for (const std::size_t end : list_.group_ends) {
      Group group(library_);
      for (std::size_t i = begin; i < end; ++i) enqueue(list_.calls[i], binding);
      group.end();
      begin = end;
    }
    clique_->check_asynchronous_errors();
  }

  [[nodiscard]] std::string describe() const override {
    std::uint64_t bytes = 0;
    for (const Call& call : list_.calls) {
      if (call.source) bytes += call.count * size_of(call.dtype);
    }
    return fmt::format("NCCL {} among {} devices: {} calls in {} {}, {} bytes read", list_.algorithm,
                       list_.devices.size(), list_.calls.size(), list_.group_ends.size(),
                       list_.group_ends.size() == 1 ? "group" : "groups", bytes);
  }

 private:
  void enqueue(const Call& call, const Binding& binding) const {
    const ncclComm_t communicator = clique_->communicator(call.rank);
    const auto at = [&](const std::optional<Place>& place) { return place ? binding.at(*place) : nullptr; };
    // The handle of a stream of the cuda backend is the native one.
    auto* const stream = reinterpret_cast<cudaStream_t>(binding.lanes[call.lane].handle);
    const ncclResult_t result = nccl::enqueue(library_.functions(), call.function,
                                              {.source = at(call.source),
                                               .target = at(call.target),
                                               .count = call.count,
                                               .type = native_type(call.dtype),
                                               .peer = call.peer},
                                              communicator, stream);
    if (result == ncclSuccess) return;
    const int device = list_.devices[static_cast<std::size_t>(call.rank)];
    library_.check(result, fmt::format("{} on device {}", name_of(call.function), device), communicator);
  }

  const Library& library_;
  std::shared_ptr<const Clique> clique_;
  CallList list_;
};

}  // namespace

std::string absence(Runtime& runtime) {
  return runtime.backend().kind() == BackendKind::cuda ? "" : "the devices are virtual";
}

Availability availability(Runtime& runtime) {
  if (const std::string absent = absence(runtime); !absent.empty())
    return {false, "not available: " + absent};
  const Library& library = Library::get();
  return {library.usable(), library.detail()};
}

std::string refusal(Runtime& runtime, const Problem& problem) {
  if (const Availability known = availability(runtime); !known.available) return known.detail;
  const auto calls = calls_for(problem);
  const auto* refused = std::get_if<Refusal>(&calls);
  if (refused != nullptr) return refused->reason;
  const std::vector<int>& devices = std::get<CallList>(calls).devices;
  if (devices.size() > 1 && runtime.extension<LaunchProbe>().find(devices) != Launching::from_one_thread)
    return std::string(launches_block);
  return runtime.extension<Cliques>().refusal(devices);
}

Plan lower(Runtime& runtime, const Problem& problem) {
  auto calls = calls_for(problem);
  if (const auto* refused = std::get_if<Refusal>(&calls)) {
    throw Error(ErrorCode::internal, fmt::format("nccl::lower: refused before: {}", refused->reason));
  }
  auto& list = std::get<CallList>(calls);
  std::string algorithm = list.algorithm;
  auto clique = runtime.extension<Cliques>().of(list.devices);
  PlanBuilder builder(problem);
  builder.accelerate(std::make_shared<GroupedCalls>(Library::get(), std::move(clique), std::move(list)));
  return builder.finish("nccl", std::move(algorithm));
}

}  // namespace tutti::transport::nccl
