// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl_calls.hpp"

#include "transport/pieces.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

namespace tutti::transport::nccl {
namespace {

/// Bounds what NCCL keeps in memory until a group ends.
constexpr std::size_t calls_per_group = 2048;

/// Builds the list; every step returns a reason to refuse, empty if there is none.
class Lowering {
 public:
  explicit Lowering(const Problem& problem) : problem_(problem) {}

  std::variant<CallList, Refusal> run() {
    std::string reason = assign_ranks();
    if (reason.empty()) reason = lower();
    if (!reason.empty()) return Refusal{std::move(reason)};
    end_group();
    return std::move(list_);
  }

 private:
  [[nodiscard]] int device_of(Place place) const { return problem_.device_of(place); }
  [[nodiscard]] LaneId lane_of(Place place) const { return problem_.lane_of(place); }
  [[nodiscard]] int rank_of(Place place) const {
    const auto found = std::ranges::lower_bound(list_.devices, device_of(place));
    return static_cast<int>(found - list_.devices.begin());
  }

  std::string lower() {
    if (!problem_.reductions.empty()) return lower_reductions();
    const bool is_broadcast = traits_of(problem_.collective).of_one_tensor == Collective::broadcast;
    return is_broadcast ? lower_broadcasts() : lower_transfers();
  }

  /// One rank for each device that any place lies on, on the one lane its buffers belong to.
  std::string assign_ranks() {
    std::map<int, LaneId> lanes;
    const auto add = [&](Place place) -> std::string {
      if (problem_.is_on_host(place)) return "a buffer is in host memory";
      const auto [known, is_new] = lanes.try_emplace(device_of(place), lane_of(place));
      if (!is_new && known->second != lane_of(place)) {
        return fmt::format("device {} takes part on two streams", device_of(place));
      }
      return {};
    };
    const auto add_all = [&](PlaceRange range, Place other) -> std::string {
      std::string reason = add(other);
      for (const Place& place : places_of(problem_, range)) {
        if (reason.empty()) reason = add(place);
      }
      return reason;
    };
    for (const Flow& flow : problem_.flows) {
      if (flow.rows > 1) return "rows are apart in memory";
      if (std::string reason = add_all(flow.targets, flow.source); !reason.empty()) return reason;
    }
    for (const Reduction& reduction : problem_.reductions) {
      if (std::string reason = add_all(reduction.inputs, reduction.output); !reason.empty()) return reason;
    }
    if (lanes.size() < 2) return "no two devices take part";
    for (const auto& [device, lane] : lanes) {
      list_.devices.push_back(device);
      list_.lanes.push_back(lane);
    }
    return {};
  }

  std::string lower_broadcasts() {
    list_.algorithm = "broadcast";
    const int root = rank_of(problem_.flows.front().source);
    for (const Flow& flow : problem_.flows) {
      if (rank_of(flow.source) != root) return "tensors come from different devices";
      std::vector<std::optional<Place>> targets(list_.devices.size());
      for (const Place& target : places_of(problem_, flow.targets)) {
        std::optional<Place>& slot = targets[static_cast<std::size_t>(rank_of(target))];
        if (slot) return fmt::format("device {} gets two copies", device_of(target));
        slot = target;
      }
      for (std::size_t rank = 0; rank < targets.size(); ++rank) {
        Call call{.function = Function::broadcast,
                  .lane = list_.lanes[rank],
                  .rank = static_cast<int>(rank),
                  .peer = root,
                  .source = {},
                  .target = targets[rank],
                  .count = flow.row_bytes};
        if (call.rank == root) {
          call.source = flow.source;
          if (!call.target) call.target = flow.source;  // NCCL's way to say: in place
        }
        if (!call.target) return fmt::format("not every tensor goes to device {}", list_.devices[rank]);
        list_.calls.push_back(call);
      }
      end_operation();
    }
    return {};
  }

  std::string lower_reductions() {
    list_.algorithm = "reduce";
    if (problem_.determinism == Determinism::bitwise) return "it adds in an order of its own";
    for (const Reduction& reduction : problem_.reductions) {
      const std::optional<Carrier> carrier = carrier_of(reduction.dtype);
      if (!carrier) return fmt::format("it does not add {}", name_of(reduction.dtype));
      const int root = rank_of(reduction.output);
      std::vector<std::optional<Place>> inputs(list_.devices.size());
      for (const Place& input : places_of(problem_, reduction.inputs)) {
        std::optional<Place>& slot = inputs[static_cast<std::size_t>(rank_of(input))];
        if (slot) return fmt::format("device {} holds two inputs", device_of(input));
        slot = input;
      }
      for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
        const bool is_root = static_cast<int>(rank) == root;
        if (!inputs[rank]) {
          return fmt::format("{}device {} holds no input", is_root ? "the destination, " : "",
                             list_.devices[rank]);
        }
        list_.calls.push_back({.function = Function::reduce,
                               .lane = list_.lanes[rank],
                               .rank = static_cast<int>(rank),
                               .peer = root,
                               .source = inputs[rank],
                               .target = is_root ? std::optional(reduction.output) : std::nullopt,
                               .count = reduction.count * carrier->elements,
                               .dtype = carrier->dtype});
      }
      end_operation();
    }
    return {};
  }

  std::string lower_transfers() {
    list_.algorithm = "send and receive";
    for (const Flow& flow : problem_.flows) {
      for (const Place& target : places_of(problem_, flow.targets)) add_transfer(flow, target);
    }
    return list_.calls.empty() ? "nothing moves between devices" : "";
  }

  void add_transfer(const Flow& flow, Place target) {
    const int from = rank_of(flow.source);
    const int to = rank_of(target);
    if (from == to) {
      list_.local_copies.push_back(
          {.lane = lane_of(target), .target = target, .source = flow.source, .row_bytes = flow.row_bytes});
      return;
    }
    list_.calls.push_back({.function = Function::send,
                           .lane = lane_of(flow.source),
                           .rank = from,
                           .peer = to,
                           .source = flow.source,
                           .target = {},
                           .count = flow.row_bytes});
    list_.calls.push_back({.function = Function::receive,
                           .lane = lane_of(target),
                           .rank = to,
                           .peer = from,
                           .source = {},
                           .target = target,
                           .count = flow.row_bytes});
    end_operation();
  }

  /// All calls that meet have been added: the place where a group may end.
  void end_operation() {
    const std::size_t begin = list_.group_ends.empty() ? 0 : list_.group_ends.back();
    if (list_.calls.size() - begin >= calls_per_group) end_group();
  }

  void end_group() {
    const std::size_t begin = list_.group_ends.empty() ? 0 : list_.group_ends.back();
    if (list_.calls.size() > begin) list_.group_ends.push_back(list_.calls.size());
  }

  const Problem& problem_;
  CallList list_;
};

}  // namespace

std::string_view name_of(Function function) noexcept {
  constexpr std::array<std::string_view, 7> names{"ncclBroadcast", "ncclReduce",        "ncclAllReduce",
                                                  "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                                  "ncclRecv"};
  return names[static_cast<std::size_t>(function)];
}

std::optional<Carrier> carrier_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
    case DType::float32:
    case DType::float64:
    case DType::int8:
    case DType::uint8:
    case DType::int32:
    case DType::int64:
      return Carrier{dtype};
    case DType::complex64:
      return Carrier{DType::float32, 2};
    case DType::complex128:
      return Carrier{DType::float64, 2};
    case DType::int16:
    case DType::boolean:
    case DType::float8_e4m3:
    case DType::float8_e5m2:
      break;
  }
  return std::nullopt;
}

std::variant<CallList, Refusal> calls_for(const Problem& problem) {
  return Lowering(problem).run();
}

}  // namespace tutti::transport::nccl
