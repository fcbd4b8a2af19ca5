// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/disjoint.hpp"

#include "tensor/overlap.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace tutti::collectives {
namespace {

/// One tensor of a list and the addresses it reaches.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
  const Named* list;
  std::size_t index;
  bool is_output;

  [[nodiscard]] const Tensor& tensor() const { return list->tensors[index]; }
};

Extent extent_of(const Named& list, std::size_t index, bool is_output) {
  const Tensor& tensor = list.tensors[index];
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data());
  return {begin, begin + tensor.layout()->span_bytes(), &list, index, is_output};
}

/// Returns true if no two tensors of all lists share a storage of the library: then they share no memory
/// either. Takes one pass over a hash table, where sorting thousands of addresses would cost more than the
/// collective.
bool have_storages_of_their_own(std::span<const Named> inputs, std::span<const Named> outputs,
                                bool are_plain) {
  std::size_t count = 0;
  for (const auto lists : {inputs, outputs}) {
    for (const Named& list : lists) count += list.tensors.size();
  }
  std::vector<const Storage*> table(std::bit_ceil(2 * count), nullptr);
  const auto insert = [&table](const Storage* storage) {
    std::size_t slot = std::hash<const Storage*>{}(storage) / alignof(std::max_align_t) * 0x9e3779b97f4a7c15U;
    for (slot >>= 32U;; ++slot) {
      const Storage*& entry = table[slot & (table.size() - 1)];
      if (entry == storage) return false;
      if (entry != nullptr) continue;
      entry = storage;
      return true;
    }
  };
  const auto all_new = [&](const Named& list) {
    return std::ranges::all_of(list.tensors, [&](const Tensor& tensor) {
      return (are_plain || is_believed(tensor)) && insert(tensor.storage().get());
    });
  };
  return std::ranges::all_of(inputs, all_new) && std::ranges::all_of(outputs, all_new);
}

/// The inputs that outputs may be exactly, by index, where they are known at once: between two lists of one
/// length. No two outputs have the same one.
std::span<const Tensor> counterparts(std::span<const Named> inputs, std::span<const Named> outputs,
                                     InPlace in_place) {
  if (in_place == InPlace::forbidden || inputs.size() != 1 || outputs.size() != 1) return {};
  const std::span<const Tensor> tensors = inputs[0].tensors;
  return tensors.size() == outputs[0].tensors.size() ? tensors : std::span<const Tensor>();
}

}  // namespace

Name Named::name(std::size_t index) const {
  if (row < 0) return is_one ? Name(argument) : Name(argument, index);
  const auto first = static_cast<std::size_t>(row);
  return is_one ? Name(argument, first) : Name(argument, first, index);
}

void MemoryRuns::start_list(bool is_output) {
  finish_run();
  last_ = {0, 0, 0, false, false, is_output};
}

void MemoryRuns::start_run(std::uintptr_t begin, std::uintptr_t end, int device) {
  finish_run();
  last_ = {begin, end, device, true, true, last_.is_output};
}

void MemoryRuns::finish_run() {
  if (last_.begin != last_.end && count_ < most_runs) runs_[count_++] = last_;
}

bool MemoryRuns::are_disjoint() {
  finish_run();
  if (count_ == most_runs) return false;
  const std::span<Run> runs = std::span(runs_).first(count_);
  std::ranges::sort(runs, {}, &Run::begin);
  std::uintptr_t end_of_inputs = 0;
  std::uintptr_t end_of_outputs = 0;
  for (const Run& run : runs) {
    const bool is_written = run.is_output || inputs_are_written_;
    if (run.begin < end_of_outputs || (is_written && run.begin < end_of_inputs)) return false;
    std::uintptr_t& end = run.is_output ? end_of_outputs : end_of_inputs;
    end = std::max(end, run.end);
  }
  return true;
}

void require_disjoint(const Arguments& arguments, std::span<const Named> inputs,
                      std::span<const Named> outputs, InPlace in_place) {
  const bool is_pair = inputs.size() == 1 && outputs.size() == 1 && inputs[0].tensors.size() == 1 &&
                       outputs[0].tensors.size() == 1;
  if (is_pair && lie_apart(inputs[0].tensors[0], outputs[0].tensors[0])) return;

  MemoryRuns runs;
  for (const Named& list : inputs) {
    runs.start_inputs();
    for (const Tensor& tensor : list.tensors) runs.add(tensor);
  }
  const std::span<const Tensor> same = counterparts(inputs, outputs, in_place);
  for (const Named& list : outputs) {
    runs.start_outputs();
    for (std::size_t i = 0; i < list.tensors.size(); ++i) {
      const Tensor& output = list.tensors[i];
      if (!same.empty() && is_same_memory(same[i], output)) {
        runs.add_in_place();
      } else {
        runs.add(output);
      }
    }
  }
  if (!runs.are_disjoint()) require_disjoint_one_by_one(arguments, inputs, outputs, in_place, false);
}

void require_disjoint_one_by_one(const Arguments& arguments, std::span<const Named> inputs,
                                 std::span<const Named> outputs, InPlace in_place, bool are_plain) {
  if (have_storages_of_their_own(inputs, outputs, are_plain)) return;

  std::vector<Extent> extents;
  const auto collect = [&extents](std::span<const Named> lists, bool is_output) {
    for (const Named& list : lists) {
      for (std::size_t i = 0; i < list.tensors.size(); ++i) {
        const Extent extent = extent_of(list, i, is_output);
        if (extent.begin != extent.end) extents.push_back(extent);
      }
    }
  };
  collect(inputs, false);
  collect(outputs, true);
  std::ranges::sort(extents, {}, &Extent::begin);

  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (std::size_t j = i + 1; j < extents.size() && extents[j].begin < extents[i].end; ++j) {
      const Extent& output = extents[i].is_output ? extents[i] : extents[j];
      const Extent& other = extents[i].is_output ? extents[j] : extents[i];
      if (!output.is_output) continue;
      const bool may_be_same =
          !other.is_output &&
          (in_place == InPlace::allowed || (in_place == InPlace::same_index && output.index == other.index));
      if (may_be_same && is_same_memory(output.tensor(), other.tensor())) continue;
      if (!shares_memory(output.tensor(), other.tensor())) continue;
      arguments.fail("{} overlaps {}, expected separate memory{}", output.list->name(output.index),
                     other.list->name(other.index), may_be_same ? " or exactly the same" : "");
    }
  }
}

}  // namespace tutti::collectives
