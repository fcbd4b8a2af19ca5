// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/calls.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

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
    if (problem_.is_of_team) return lane_of(place);
    const auto found = std::ranges::lower_bound(list_.devices, device_of(place));
    return static_cast<int>(found - list_.devices.begin());
  }
  [[nodiscard]] std::string name_of_rank(std::size_t rank) const {
    return problem_.is_of_team ? fmt::format("member {}", rank)
                               : fmt::format("device {}", list_.devices[rank]);
  }
  [[nodiscard]] std::size_t ranks() const noexcept { return list_.devices.size(); }

  std::string lower() {
    if (!problem_.reductions.empty()) return lower_reductions();
    switch (problem_.collective) {
      case Collective::broadcast:
        list_.algorithm = "broadcast";
        return lower_broadcasts();
      case Collective::all_gather:
        return problem_.shape.counted ? lower_unequal_all_gather() : lower_all_gathers();
      default:
        return lower_transfers();
    }
  }

  std::string assign_ranks() {
    if (problem_.flows.empty() && problem_.reductions.empty()) return "nothing is to be moved";
    for (const Flow& flow : problem_.flows) {
      if (flow.rows > 1) return "rows are apart in memory";
    }
    return problem_.is_of_team ? take_members() : take_devices();
  }

  std::string take_members() {
    list_.devices = problem_.lane_devices;
    for (std::size_t member = 0; member < ranks(); ++member)
      list_.lanes.push_back(static_cast<LaneId>(member));
    return ranks() < 2 ? "there is one member" : "";
  }

  /// Assigns one rank to each device that any place is on, on the one lane its buffers belong to.
  std::string take_devices() {
    std::map<int, LaneId> lanes;
    const auto add = [&](Place place) -> std::string {
      if (problem_.is_on_host(place)) return "a buffer is in host memory";
      const auto [known, is_new] = lanes.try_emplace(device_of(place), lane_of(place));
      if (!is_new && known->second != lane_of(place)) {
        return fmt::format("device {} takes part on two streams", device_of(place));
      }
      return {};
    };
    const auto add_all = [&](PlaceRange range) -> std::string {
      std::string reason;
      for (const Place& place : problem_.places_of(range)) {
        if (reason.empty()) reason = add(place);
      }
      return reason;
    };
    for (const Flow& flow : problem_.flows) {
      std::string reason = add(flow.source);
      if (reason.empty()) reason = add_all(flow.targets);
      if (!reason.empty()) return reason;
    }
    for (const Reduction& reduction : problem_.reductions) {
      std::string reason = add_all(reduction.outputs);
      if (reason.empty()) reason = add_all(reduction.inputs);
      if (!reason.empty()) return reason;
    }
    if (lanes.size() < 2) return "no two devices take part";
    for (const auto& [device, lane] : lanes) {
      list_.devices.push_back(device);
      list_.lanes.push_back(lane);
    }
    return {};
  }

  [[nodiscard]] bool stays_on_its_rank(const Flow& flow) const {
    return std::ranges::all_of(problem_.places_of(flow.targets),
                               [&](Place target) { return rank_of(target) == rank_of(flow.source); });
  }

  /// Each part is broadcast into the others' results, and its own member's if it is not there.
  std::string lower_unequal_all_gather() {
    list_.algorithm = "all-gather by broadcasts";
    return lower_broadcasts();
  }

  std::string lower_broadcasts() {
    const Flow* before = nullptr;
    constexpr std::size_t elsewhere = ~std::size_t{0};
    std::size_t at_root = elsewhere;  // the root's call for that, if it is made here
    for (const Flow& flow : problem_.flows) {
      const int root = rank_of(flow.source);
      if (!problem_.is_of_team && root != rank_of(problem_.flows.front().source))
        return "tensors come from different devices";
      // What the root of a team keeps is a separate flow, which all ranks may see.
      if (before != nullptr && stays_on_its_rank(flow) && flow.source == before->source) {
        if (at_root != elsewhere) list_.calls[at_root].target = problem_.places_of(flow.targets).front();
        continue;
      }
      before = &flow;
      at_root = elsewhere;
      std::vector<std::optional<Place>> targets(ranks());
      for (const Place& target : problem_.places_of(flow.targets)) {
        std::optional<Place>& slot = targets[static_cast<std::size_t>(rank_of(target))];
        if (slot) return fmt::format("device {} gets two copies", device_of(target));
        slot = target;
      }
      for (std::size_t rank = 0; rank < targets.size(); ++rank) {
        Call call{
            .function = Function::broadcast, .peer = root, .target = targets[rank], .count = flow.row_bytes};
        const bool is_root = static_cast<int>(rank) == root;
        if (is_root) {
          call.source = flow.source;
          if (!call.target) call.target = flow.source;  // NCCL's way to say: in place
        }
        if (!call.target) return fmt::format("not every tensor goes to {}", name_of_rank(rank));
        if (add(rank, call) && is_root) at_root = list_.calls.size() - 1;
      }
      end_operation();
    }
    return {};
  }

  std::string lower_reductions() {
    if (problem_.determinism == Determinism::bitwise) return "it adds in an order of its own";
    for (const Reduction& reduction : problem_.reductions) {
      if (carrier_of(reduction.dtype, problem_.reduce_kind)) continue;
      if (problem_.reduce_kind == ReduceKind::sum)
        return fmt::format("it does not sum {}", name_of(reduction.dtype));
      return fmt::format("its {} of {} may differ from tutti's", tutti::name_of(problem_.reduce_kind),
                         name_of(reduction.dtype));
    }
    if (problem_.collective == Collective::reduce_scatter) return lower_reduce_scatters();
    list_.algorithm = problem_.reductions.front().outputs.count > 1 ? "all-reduce" : "reduce";
    for (const Reduction& reduction : problem_.reductions) {
      std::string reason = lower_reduction(reduction);
      if (!reason.empty()) return reason;
      end_operation();
    }
    return {};
  }

  std::string lower_reduction(const Reduction& reduction) {
    const Carrier carrier = *carrier_of(reduction.dtype, problem_.reduce_kind);
    const auto [inputs, refusal] = by_rank(reduction.inputs);
    if (!refusal.empty()) return refusal;
    const std::span<const Place> outputs = problem_.places_of(reduction.outputs);
    const bool is_for_all = outputs.size() > 1;
    const int root = rank_of(outputs.front());
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const bool is_root = static_cast<int>(rank) == root;
      if (!inputs[rank]) {
        return fmt::format("{}{} holds no input", is_root ? "the destination, " : "", name_of_rank(rank));
      }
      Call call{.function = is_for_all ? Function::all_reduce : Function::reduce,
                .peer = is_for_all ? 0 : root,
                .source = inputs[rank],
                .count = reduction.count * carrier.elements,
                .dtype = carrier.dtype,
                .kind = problem_.reduce_kind};
      if (is_for_all) {
        call.target = outputs[rank];
      } else if (is_root) {
        call.target = outputs.front();
      }
      add(rank, call);
    }
    return {};
  }

  /// Each tensor has a reduction for every rank, its part.
  std::string lower_reduce_scatters() {
    if (problem_.shape.counted) return lower_unequal_reduce_scatter();
    list_.algorithm = "reduce-scatter";
    for (std::size_t first = 0; first < problem_.reductions.size(); first += ranks()) {
      std::string reason = lower_reduce_scatter(std::span(problem_.reductions).subspan(first, ranks()));
      if (!reason.empty()) return reason;
      end_operation();
    }
    return {};
  }

  /// Each part is summed at its member.
  std::string lower_unequal_reduce_scatter() {
    list_.algorithm = "reduce-scatter by reduces";
    for (const Reduction& reduction : problem_.reductions) {
      std::string reason = lower_reduction(reduction);
      if (!reason.empty()) return reason;
      end_operation();
    }
    return {};
  }

  std::string lower_reduce_scatter(std::span<const Reduction> parts) {
    const Reduction& first = parts.front();
    const Carrier carrier = *carrier_of(first.dtype, problem_.reduce_kind);
    const auto [inputs, refusal] = by_rank(first.inputs);
    if (!refusal.empty()) return refusal;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      add(rank, {.function = Function::reduce_scatter,
                 .source = inputs[rank],
                 .target = problem_.output_of(parts[rank]),
                 .count = first.count * carrier.elements,
                 .dtype = carrier.dtype,
                 .kind = problem_.reduce_kind});
    }
    return {};
  }

  /// Lowers all-gathers. A rank's data goes to its own part of the others' results; each tensor has such a
  /// flow from every rank, in order.
  std::string lower_all_gathers() {
    list_.algorithm = "all-gather";
    std::vector<const Flow*> outward;
    for (const Flow& flow : problem_.flows) {
      if (!stays_on_its_rank(flow)) outward.push_back(&flow);
    }
    for (std::size_t first = 0; first < outward.size(); first += ranks()) {
      lower_all_gather(std::span(outward).subspan(first, ranks()));
      end_operation();
    }
    return {};
  }

  void lower_all_gather(std::span<const Flow* const> by_rank) {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const Flow& from_another = *by_rank[rank == 0 ? 1 : 0];
      const auto part = std::ranges::find(problem_.places_of(from_another.targets), static_cast<int>(rank),
                                          [this](Place target) { return rank_of(target); });
      add(rank, {.function = Function::all_gather,
                 .source = by_rank[rank]->source,
                 .target = Place{part->buffer, 0},
                 .count = by_rank[rank]->row_bytes});
    }
  }

  std::string lower_transfers() {
    list_.algorithm = "send and receive";
    for (const Flow& flow : problem_.flows) {
      for (const Place& target : problem_.places_of(flow.targets)) {
        const int from = rank_of(flow.source);
        const int to = rank_of(target);
        add(static_cast<std::size_t>(from),
            {.function = Function::send, .peer = to, .source = flow.source, .count = flow.row_bytes});
        add(static_cast<std::size_t>(to),
            {.function = Function::receive, .peer = from, .target = target, .count = flow.row_bytes});
        end_operation();
      }
    }
    // A team knows such flows only when all rely on them: they go through NCCL, too.
    const bool stay = !problem_.is_of_team && std::ranges::all_of(problem_.flows, [this](const Flow& flow) {
      return stays_on_its_rank(flow);
    });
    return stay ? "nothing moves between devices" : "";
  }

  /// The places by rank, one each at most, or why not.
  [[nodiscard]] std::pair<std::vector<std::optional<Place>>, std::string> by_rank(PlaceRange range) const {
    std::vector<std::optional<Place>> places(ranks());
    for (const Place& place : problem_.places_of(range)) {
      std::optional<Place>& slot = places[static_cast<std::size_t>(rank_of(place))];
      if (slot) return {places, fmt::format("device {} holds two inputs", device_of(place))};
      slot = place;
    }
    return {places, {}};
  }

  /// Adds the call if this process makes it, and returns true then.
  bool add(std::size_t rank, Call call) {
    if (!problem_.is_of_team) ++in_group_;
    if (list_.devices[rank] == remote_device) return false;
    call.rank = static_cast<int>(rank);
    call.lane = list_.lanes[rank];
    list_.calls.push_back(call);
    return true;
  }

  /// All calls that meet have been added: the place where a group may end.
  void end_operation() {
    if (problem_.is_of_team) ++in_group_;
    if (in_group_ >= calls_per_group) end_group();
  }

  void end_group() {
    const std::size_t begin = list_.group_ends.empty() ? 0 : list_.group_ends.back();
    if (in_group_ > 0 || list_.calls.size() > begin) list_.group_ends.push_back(list_.calls.size());
    in_group_ = 0;
  }

  const Problem& problem_;
  CallList list_;
  /// Calls; in a team operations, which are as many on all ranks, and of which each rank makes a call or a
  /// few.
  std::size_t in_group_ = 0;
};

}  // namespace

std::string_view name_of(Function function) noexcept {
  constexpr std::array<std::string_view, 7> names{"ncclBroadcast", "ncclReduce",        "ncclAllReduce",
                                                  "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                                  "ncclRecv"};
  return names[static_cast<std::size_t>(function)];
}

std::optional<Carrier> carrier_of(DType dtype, ReduceKind kind) {
  const bool is_sum = kind == ReduceKind::sum;
  // Integers give the same result in any order. NCCL promises neither the order nor what becomes of NaNs.
  const bool is_exact = kind == ReduceKind::min || kind == ReduceKind::max || kind == ReduceKind::prod;
  switch (dtype) {
    case DType::int8:
    case DType::uint8:
    case DType::int32:
    case DType::uint32:
    case DType::int64:
    case DType::uint64:
      return is_sum || is_exact ? std::optional(Carrier{dtype}) : std::nullopt;
    case DType::float16:
    case DType::bfloat16:
    case DType::float32:
    case DType::float64:
      return is_sum ? std::optional(Carrier{dtype}) : std::nullopt;
    case DType::complex64:
      return is_sum ? std::optional(Carrier{DType::float32, 2}) : std::nullopt;
    case DType::complex128:
      return is_sum ? std::optional(Carrier{DType::float64, 2}) : std::nullopt;
    case DType::int16:
    case DType::uint16:
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
