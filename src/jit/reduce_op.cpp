// SPDX-License-Identifier: Apache-2.0
#include "tutti/reduce_op.hpp"

#include "jit/jit_combination.hpp"

#include <memory>
#include <string>
#include <utility>

namespace tutti {

ReduceOp ReduceOp::compiled(std::string source) {
  ReduceOp op(ReduceKind::compiled);
  op.combination_ = std::make_shared<const JitCombination>(std::move(source), "ReduceOp::compiled");
  return op;
}

const std::string& ReduceOp::source() const noexcept {
  static const std::string none;
  return combination_ == nullptr ? none : combination_->source();
}

}  // namespace tutti
