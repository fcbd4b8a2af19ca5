// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/buffer_sets.hpp"

#include "perf/measure/fill_and_check.hpp"

namespace tutti::perf {

BufferSets::BufferSets(const Operation& operation, const Case& what, Placement placement, int count,
                       const Session& session)
    : of_communicator_(operation.needs_communicator()), have_outputs_(operation.moves_tensors()) {
  for (int set = 0; set < count; ++set) {
    if (what.memory != nullptr) what.memory->start_set(static_cast<std::size_t>(set));
    calls_.push_back(operation.prepare(what, placement));
  }
  session.synchronize();  // preparing enqueues copies
}

void BufferSets::fill_all(const Session& session) const {
  fill(calls_.front().input_buffers);
  copy_first_to_others(&Call::input_buffers, session);
}

void BufferSets::poison_all(const Session& session) const {
  poison(calls_.front().poisonable);
  copy_first_to_others(&Call::poisonable, session);
}

std::uint64_t BufferSets::count_wrong_in_all() const {
  std::uint64_t wrong = 0;
  for (const Call& call : calls_) wrong += count_wrong(call.output_buffers);
  return wrong;
}

void BufferSets::copy_first_to_others(std::vector<Buffer> Call::*buffers, const Session& session) const {
  for (std::size_t set = 1; set < calls_.size(); ++set) {
    for (std::size_t index = 0; index < (calls_[set].*buffers).size(); ++index) {
      (calls_[set].*buffers)[index].tensor.copy_((calls_.front().*buffers)[index].tensor, Blocking::no);
    }
  }
  session.synchronize();
}

}  // namespace tutti::perf
