// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/kernels/kernels.hpp"
#include "backend/host/memory/translation.hpp"
#include "backend/operations.hpp"
#include "backend/team_round.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

/// Runs kernels over tables of segments: all addresses are translated first, so that a refused access leaves
/// everything untouched.
namespace tutti::backend::host {

class FanOutWork {
 public:
  /// Keeps a copy of the description. Throws Error(invalid_argument) if it contradicts itself.
  explicit FanOutWork(const FanOut& task);
  [[nodiscard]] bool empty() const noexcept { return segments_.empty(); }
  void operator()(Translation& translation) const { run(translation, std::identity(), std::identity()); }
  /// Runs the copies with every source replaced by `source(place)`, and every target by `target(place)`.
  template <class Source, class Target>
  void run(Translation& translation, const Source& source, const Target& target) const;

 private:
  std::vector<FanOutSegment> segments_;
  std::vector<std::byte*> pointers_;
};

/// The copies of a round that swaps (`TeamRound::swaps`).
class SwapWork {
 public:
  /// Keeps a copy of the description. Throws Error(invalid_argument) if it contradicts itself.
  explicit SwapWork(const FanOut& task);
  /// Runs the copies. `places.address_of(place)` finds memory; `places.is_in_place(place)` tells whether
  /// memory that another member exposes is in place.
  template <class Places>
  void run(Translation& translation, const Places& places) const;

 private:
  std::vector<FanOutSegment> segments_;
  std::vector<std::byte*> pointers_;
};

class OrderedReductionWork {
 public:
  /// Keeps a copy of the description. Throws Error(invalid_argument) if it contradicts itself.
  explicit OrderedReductionWork(const OrderedReduction& task);
  void operator()(Translation& translation) const { run(translation, std::identity()); }
  /// Runs the reductions with every input replaced by `place(input)`, and outputs where a segment has
  /// several.
  template <class Place>
  void run(Translation& translation, const Place& place) const;

 private:
  DType dtype_;
  ReduceKind kind_;
  std::vector<double> factors_;
  std::uint32_t input_count_;
  std::uint32_t output_count_;
  std::vector<OrderedReductionSegment> segments_;
  std::vector<std::byte*> pointers_;
};

template <class Source, class Target>
void FanOutWork::run(Translation& translation, const Source& source, const Target& target) const {
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> targets;
  sources.reserve(segments_.size());
  targets.reserve(pointers_.size());
  std::uint64_t written = 0;
  for (const FanOutSegment& segment : segments_) {
    translation.begin_segment();
    sources.push_back(translation.read(source(pointers_[segment.source]),
                                       {segment.row_bytes, segment.rows, segment.source_pitch}));
    written += segment.row_bytes * segment.rows * segment.target_count;
    for (std::byte* const place : std::span(pointers_).subspan(segment.first_target, segment.target_count)) {
      targets.push_back(
          translation.write(target(place), {segment.row_bytes, segment.rows, segment.target_pitch}));
    }
  }
  const Stores stores = stores_for(written);
  std::span<std::byte* const> remaining = targets;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    fan_out_segment(segments_[i], sources[i], remaining.first(segments_[i].target_count), stores);
    remaining = remaining.subspan(segments_[i].target_count);
  }
}

template <class Places>
void SwapWork::run(Translation& translation, const Places& places) const {
  struct Found {
    std::size_t bytes;
    const std::byte* source;
    std::byte* target;
    std::byte* taken;  ///< nullptr: the bytes are copied
  };
  const auto place = [&](std::uint32_t index) { return reinterpret_cast<std::uintptr_t>(pointers_[index]); };
  std::vector<Found> found;
  found.reserve(segments_.size());
  std::uint64_t written = 0;
  for (const FanOutSegment& segment : segments_) {
    const std::uint64_t source = place(segment.source);
    const std::uint64_t target = place(segment.first_target);
    const std::size_t bytes = segment.row_bytes;
    translation.begin_segment();
    if (segment.swap != Swap::never) {
      const SwapPlaces swapped = SwapPlaces::of(source, target, place(segment.first_target + 1));
      if (places.is_in_place(swapped.exposed)) {
        const std::byte* const given = translation.read(places.address_of(swapped.given), bytes);
        std::byte* const exposed = places.address_of(swapped.exposed);
        std::byte* const overwritten = translation.write(exposed, bytes);
        translation.begin_segment();
        static_cast<void>(translation.read(exposed, bytes));
        std::byte* const taken = translation.write(places.address_of(swapped.taken), bytes);
        found.push_back({bytes, given, overwritten, taken});
        continue;
      }
      if (segment.swap == Swap::of_both_in_place) continue;
    }
    const std::byte* const from = translation.read(places.address_of(source), bytes);
    found.push_back({bytes, from, translation.write(places.address_of(target), bytes), nullptr});
    written += bytes;
  }
  const Stores stores = stores_for(written);
  for (const auto& [bytes, source, target, taken] : found) {
    if (taken != nullptr) {
      swap_bytes(bytes, source, target, taken);
    } else {
      put(target, source, bytes, stores);
    }
  }
  finish(stores);
}

template <class Place>
void OrderedReductionWork::run(Translation& translation, const Place& place) const {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  inputs.reserve(segments_.size() * input_count_);
  outputs.reserve(segments_.size() * output_count_);
  std::uint64_t written = 0;
  for (const OrderedReductionSegment& segment : segments_) {
    const std::size_t bytes = segment.count * size_of(dtype_);
    written += bytes * output_count_;
    translation.begin_segment();
    for (std::byte* const input : std::span(pointers_).subspan(segment.first_input, input_count_))
      inputs.push_back(translation.read(place(input), bytes));
    for (std::byte* const output : std::span(pointers_).subspan(segment.first_output, output_count_))
      outputs.push_back(translation.write(output_count_ > 1 ? place(output) : output, bytes));
  }
  const Stores stores = stores_for(written);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    ordered_reduction_segment(dtype_, {kind_, factors_}, segments_[i].count,
                              std::span(inputs).subspan(i * input_count_, input_count_),
                              std::span(outputs).subspan(i * output_count_, output_count_), stores);
  }
}

}  // namespace tutti::backend::host
