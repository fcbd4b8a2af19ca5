// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/operations.hpp"
#include "settings/environment.hpp"
#include "transport/plan/shape.hpp"
#include "tutti/collectives.hpp"
#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Describes what a collective asks of a transport, free of addresses: buffers, where they live, and which
/// bytes go where.
///
/// Every collective, of one process or of a team, is a list of flows (bytes copied to one or more places) or
/// a list of reductions (ordered sums, or by another operation, which is the same for all of a problem's).
/// The collectives describe *what*, a transport decides *how*, and so chunking and summing order are written
/// once.
namespace tutti::transport {

/// Index of a buffer: operands in the order of the call, then a plan's temporaries.
using BufferId = std::uint32_t;
/// Index of a lane: one stream of one device, on which tensors are used. In a team lane m is member m's.
using LaneId = std::uint16_t;
/// The home of buffers in host memory.
inline constexpr LaneId host_lane = 0xffff;
/// The device of a lane that is another process's.
inline constexpr int remote_device = -1;

/// A position in a buffer, in bytes.
struct Place {
  BufferId buffer = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

/// A run of entries of `Problem::places`.
struct PlaceRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// One rectangle of bytes that goes from one place to one or more others.
struct Flow {
  Place source;
  PlaceRange targets;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 1;
  std::uint64_t source_pitch = 0;  ///< bytes between rows; ignored for one row
  std::uint64_t target_pitch = 0;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return row_bytes * rows; }
};

/// Combines `count` elements of the inputs in order and writes the result to each of the outputs, which may
/// be inputs.
struct Reduction {
  DType dtype = DType::float32;
  std::uint64_t count = 0;
  PlaceRange inputs;
  PlaceRange outputs;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * size_of(dtype); }
};

/// The way of launching, which decides which costs count.
enum class LaunchMode : std::uint8_t {
  eager,       ///< the host issues every step, every time
  persistent,  ///< steps are recorded once and replayed as one graph
};

/// Converts the option of calls and communicators: no value means all.
[[nodiscard]] inline std::uint32_t most_multiprocessors_of(std::optional<int> option) noexcept {
  return option ? static_cast<std::uint32_t>(*option) : backend::all_multiprocessors;
}

struct Problem {
  Collective collective = Collective::broadcast;
  std::string_view name = {};  ///< of the function that was called, for messages
  LaunchMode mode = LaunchMode::eager;
  TransportKind transport = TransportKind::automatic;
  TransportSource transport_source = TransportSource::options;
  Determinism determinism = Determinism::fastest;
  ReduceKind reduce_kind = ReduceKind::sum;  ///< of the reductions
  /// The most multiprocessors that kernels of the call may hold at a time on each device; 0: no kernels.
  std::uint32_t most_multiprocessors = backend::all_multiprocessors;
  std::uint64_t staging_bytes = default_buffer_size;  ///< bound on staging memory per device
  /// Lanes are the members of a team, of which some may be remote; its calls come in one order on all ranks.
  bool is_of_team = false;
  bool is_captured = false;  ///< the call becomes part of a graph
  /// Some of the shape and of what is moved is known only when the others rely on the call.
  bool is_outline = false;
  std::vector<int> lane_devices;  ///< operand lanes
  std::vector<LaneId> homes;      ///< of each operand buffer
  /// The lane whose queued work must be done before a buffer may be touched: its home, or, for memory that is
  /// allocated for first use elsewhere, that lane. In rounds of a single process it is the home.
  std::vector<LaneId> ready;
  LaneId root = host_lane;            ///< the root's lane
  std::vector<Place> places;          ///< pool for the ranges below
  std::vector<Flow> flows;            ///< none is empty
  std::vector<Reduction> reductions;  ///< none is empty
  CallShape shape;                    ///< decides between algorithms
  /// No output shares memory with what its lane sends to others. Otherwise an output may overwrite only the
  /// bytes that it is made of.
  bool outputs_are_apart = false;
  /// The outputs of local members that are their inputs, in an exchange of equal parts: what comes from a
  /// lane is written where as much was sent to that lane. Only their own rank knows. In ascending order.
  std::vector<BufferId> exchanged_in_place;
  /// An exchange of equal parts whose sizes allow that members swap them (`backend::TeamRound::swaps`): the
  /// buffers are the inputs and, in the same order, the outputs.
  bool may_swap = false;

  [[nodiscard]] bool is_bounded() const noexcept {
    return most_multiprocessors != backend::all_multiprocessors;
  }
  /// Returns the bytes that are read once: of all flows, or of the results of the reductions.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t total = 0;
    for (const Flow& flow : flows) total += flow.bytes();
    for (const Reduction& reduction : reductions) total += reduction.bytes();
    return total;
  }
  [[nodiscard]] bool is_on_host(Place place) const noexcept { return homes[place.buffer] == host_lane; }
  /// Returns the device of a place that is not on the host.
  [[nodiscard]] int device_of(Place place) const noexcept { return lane_devices[homes[place.buffer]]; }
  [[nodiscard]] LaneId lane_of(Place place) const noexcept { return homes[place.buffer]; }
  [[nodiscard]] bool is_remote(LaneId lane) const noexcept { return lane_devices[lane] == remote_device; }
  /// Returns the entries of `places` that a range names.
  [[nodiscard]] std::span<const Place> places_of(PlaceRange range) const noexcept {
    return std::span(places).subspan(range.first, range.count);
  }
  /// Returns the output of a reduction with one output.
  [[nodiscard]] Place output_of(const Reduction& reduction) const noexcept {
    return places[reduction.outputs.first];
  }
};

}  // namespace tutti::transport
