// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_plan.hpp"
#include "transport/select/select.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <variant>

#include <fmt/format.h>

namespace tutti::transport {
namespace {

using team::RoundPart;

/// Turns steps into lines. Long pipelines repeat themselves, so copies between the same two places are added
/// up.
class Text {
 public:
  explicit Text(const Plan& plan) : plan_(plan) {}

  std::string whole() {
    std::string result = fmt::format("transport: {}\nalgorithm: {}\nmultiprocessors: {}\n",
                                     plan_.summary.transport, plan_.summary.algorithm, multiprocessors());
    for (const std::string& reason : plan_.reasons) result += fmt::format("because: {}\n", reason);
    for (const PlannedStep& planned : plan_.steps) {
      if (planned.phase == Phase::body) std::visit([this](const auto& step) { add(step); }, planned.step);
    }
    for (const Line& line : lines_) {
      const bool is_repeated = line.launches > 1;
      result += is_repeated ? fmt::format("step: {} x {}", line.launches, line.what) : "step: " + line.what;
      if (line.bytes > 0) result += fmt::format(", {} bytes{}", line.bytes, is_repeated ? " in all" : "");
      result += '\n';
    }
    if (plan_.process_rounds) return result + way_of_process();
    if (rounds_of(plan_) != nullptr) return result;
    result += fmt::format("order: {} waits before, {} inside, {} after{}\n", waits(Phase::entry),
                          waits(Phase::body), waits(Phase::exit), signals());
    std::uint64_t staging = 0;
    for (const Temporary& temporary : plan_.temporaries)
      staging += temporary.lane == host_lane ? temporary.bytes : 0;
    result += fmt::format("pinned staging memory: {} bytes\n", staging);
    return result;
  }

 private:
  struct Line {
    std::string what;
    std::uint64_t bytes = 0;
    std::size_t launches = 0;
  };

  /// Describes how many multiprocessors of each device the work may hold at a time.
  [[nodiscard]] std::string multiprocessors() const {
    const bool is_bounded = plan_.most_multiprocessors != backend::all_multiprocessors;
    bool has_kernels = false;
    for (const PlannedStep& planned : plan_.steps) {
      if (std::holds_alternative<AcceleratedStep>(planned.step))
        return is_bounded ? fmt::format("at most {}, which NCCL is told", plan_.most_multiprocessors)
                          : "one for each channel that NCCL opens";
      if (const auto* const rounds = std::get_if<RoundsStep>(&planned.step)) {
        if (rounds->rounds->round_count == 0) continue;
        return fmt::format("as many as there is work for, at most {}",
                           std::min(plan_.most_multiprocessors, backend::most_team_blocks));
      }
      has_kernels |= std::holds_alternative<FanOutStep>(planned.step) ||
                     std::holds_alternative<ReductionStep>(planned.step);
    }
    if (!has_kernels) return "none between devices";
    return is_bounded ? fmt::format("as many as there is work for, at most {}", plan_.most_multiprocessors)
                      : "as many as there is work for, at most the whole chip";
  }

  /// Describes which devices the members are, and when rounds are not launched.
  [[nodiscard]] std::string way_of_process() const {
    std::vector<std::string> devices;
    for (const int device : plan_.lane_devices) devices.push_back(to_string(Device(device)));
    const PlanSummary& otherwise = plan_.process_rounds->otherwise->summary;
    return fmt::format(
        "members: {}\notherwise, as where a stream is captured, or calls on other streams are under way: {}, "
        "{}\n",
        fmt::join(devices, ", "), otherwise.transport, otherwise.algorithm);
  }

  [[nodiscard]] std::string place(BufferId buffer) const {
    const LaneId home = plan_.homes[buffer];
    return home == host_lane ? "host" : to_string(Device(plan_.lane_devices[home]));
  }
  [[nodiscard]] std::string executor(LaneId lane) const {
    return to_string(Device(plan_.lane_devices[lane]));
  }

  /// The distinct homes of some buffers, in order of devices.
  [[nodiscard]] std::string places(const std::set<std::string>& names) const {
    return fmt::format("{}", fmt::join(names, ", "));
  }

  static std::string pieces(std::size_t count) {
    return fmt::format("{} piece{}", count, count == 1 ? "" : "s");
  }

  void line(const std::string& what, std::uint64_t bytes) {
    const auto [found, is_new] = index_.try_emplace(what, lines_.size());
    if (is_new) lines_.push_back({what});
    lines_[found->second].bytes += bytes;
    ++lines_[found->second].launches;
  }

  void add(const RecordStep&) {}
  void add(const WaitStep&) {}
  void add(const CopyStep& step) {
    line(fmt::format("copy engine of {}: {} -> {}", executor(step.lane), place(step.source.buffer),
                     place(step.target.buffer)),
         step.row_bytes * step.rows);
  }
  void add(const FanOutStep& step) {
    std::set<std::string> sources;
    std::set<std::string> targets;
    for (const backend::FanOutSegment& segment : step.segments) {
      sources.insert(place(step.pointers[segment.source].buffer));
      for (std::uint32_t i = 0; i < segment.target_count; ++i) {
        targets.insert(place(step.pointers[segment.first_target + i].buffer));
      }
    }
    const std::uint64_t bytes = bytes_of(step.segments);
    line(fmt::format("kernel on {} ({}): {} -> {}", executor(step.lane), pieces(step.segments.size()),
                     places(sources), places(targets)),
         bytes);
  }
  void add(const ReductionStep& step) {
    std::set<std::string> sources;
    std::set<std::string> targets;
    std::uint64_t bytes = 0;
    for (const backend::OrderedReductionSegment& segment : step.segments) {
      for (std::uint32_t i = 0; i < step.input_count; ++i) {
        sources.insert(place(step.pointers[segment.first_input + i].buffer));
      }
      targets.insert(place(step.pointers[segment.first_output].buffer));
      bytes += segment.count * size_of(step.dtype);
    }
    line(fmt::format("kernel on {} ({}): reduction of {} {} inputs on {} -> {}", executor(step.lane),
                     pieces(step.segments.size()), step.input_count, name_of(step.dtype), places(sources),
                     places(targets)),
         bytes);
  }
  void add(const AcceleratedStep& step) { line(step.work->in_words(), 0); }
  void add(const RoundsStep& step) {
    for (std::size_t local = 0; local < step.rounds->parts.size(); ++local) {
      for (const RoundPart& part : step.rounds->parts[local]) add(step.rounds->first_local + local, part);
    }
  }
  /// Describes what a member does in a round.
  void add(std::size_t member, const RoundPart& part) {
    if (!part.exposed.empty())
      line(fmt::format("member {} gives its own to {}", member, members_named(part.readers)), 0);
    if (const std::uint64_t put = bytes_of(part.puts.segments); put > 0)
      line(fmt::format("member {} puts for {}", member, members_named(part.readers)), put);
    const std::string takes = part.sources.empty() ? fmt::format("member {}", member)
                                                   : fmt::format("member {} takes from {} and", member,
                                                                 members_named(part.sources));
    std::uint64_t added = 0;
    for (const backend::OrderedReductionSegment& segment : part.reductions.segments)
      added += segment.count * size_of(part.dtype);
    if (added > 0 && part.input_count == 1) {
      line(fmt::format("{} keeps", takes), added);
    } else if (added > 0) {
      line(fmt::format("{} reduces {} {} inputs{}", takes, part.input_count, name_of(part.dtype),
                       part.output_count > 1 ? ", for all" : ""),
           added);
    }
    if (const std::uint64_t copied = bytes_of(part.copies.segments); copied > 0)
      line(fmt::format("{} keeps", takes), copied);
  }
  static std::uint64_t bytes_of(const std::vector<backend::FanOutSegment>& segments) {
    std::uint64_t bytes = 0;
    for (const backend::FanOutSegment& segment : segments) bytes += segment.row_bytes * segment.rows;
    return bytes;
  }
  static std::string members_named(const std::vector<std::uint32_t>& members) {
    return fmt::format("{} {}", members.size() == 1 ? "member" : "members", fmt::join(members, ", "));
  }

  [[nodiscard]] std::ptrdiff_t waits(Phase phase) const {
    return std::ranges::count_if(plan_.steps, [phase](const PlannedStep& planned) {
      return planned.phase == phase && std::holds_alternative<WaitStep>(planned.step);
    });
  }

  [[nodiscard]] std::string_view signals() const {
    switch (plan_.signals) {
      case SignalUse::with_help:
        return ", by signals while threads help";
      case SignalUse::always:
        return ", by signals";
      case SignalUse::never:
        break;
    }
    return "";
  }

  const Plan& plan_;
  std::vector<Line> lines_;
  std::map<std::string, std::size_t> index_;
};

}  // namespace

std::string to_text(const Plan& plan) {
  return Text(plan).whole();
}

}  // namespace tutti::transport
