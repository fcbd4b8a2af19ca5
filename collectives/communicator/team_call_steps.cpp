// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team_call.hpp"
#include "os/thread.hpp"

#include <cstdint>
#include <functional>

/// Calls that take several steps, each of which travels as a call of its own.
namespace tutti::collectives {

void TeamCall::run_steps(const std::function<void()>& steps) {
  shape_of_call_ = signature_.shape;
  try {
    steps();
  } catch (...) {
    const backend::Escaped escaped = backend::Escaped::current();
    if (sequence_ != 0 && !team_.abort().is_set()) give_up(escaped);
    throw;
  }
}

void TeamCall::begin_step(const Request& request, std::uint64_t elements, DType dtype) {
  request_ = request;
  context_.scratch().operands.operation = {};  // what is combined is so behind the step
  operands_.clear();
  signature_.dtype = dtype;
  signature_.elements = elements;
  signature_.shape = shape_of_call_;
  signature_.add_to_shape(++steps_);
  for (const std::uint64_t number : request.copied().bytes) signature_.add_to_shape(number);
  for (const std::uint64_t number : request.parts) signature_.add_to_shape(number);
  begin();
}

}  // namespace tutti::collectives
