// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"
#include "ranks/bad_input/methods.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "support/collectives/member_call.hpp"
#include "tutti/reduce_op.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

/// Every method of a communicator that takes an operation, with one that its elements do not have, or with
/// factors that fit neither them nor the members.
namespace tutti::test::ranks {
namespace {

/// The forms that reduce.
std::vector<CollectiveForm> reducing_forms() {
  std::vector<CollectiveForm> forms = all_forms();
  std::erase_if(forms, [](CollectiveForm form) { return !traits_of(form.collective).reduces; });
  return forms;
}

struct WrongOperation {
  std::string name;
  DType dtype;
  ReduceOp op;
  std::string message;
};

std::vector<BadCall> wrong_operations() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<WrongOperation> kinds{
      {"LeastOfComplex", DType::complex64, ReduceOp::min,
       "op is min, expected an operation that complex64 supports"},
      {"LargestOfComplex", DType::complex128, ReduceOp::max,
       "op is max, expected an operation that complex128 supports"},
      {"BitsOfFloats", DType::float32, ReduceOp::band,
       "op is band, expected an operation that float32 supports"},
      {"BitsOfHalves", DType::bfloat16, ReduceOp::bxor,
       "op is bxor, expected an operation that bfloat16 supports"},
      {"AverageOfTruth", DType::boolean, ReduceOp::avg,
       "op is avg, expected an operation that bool supports"},
      {"ScaledTruth", DType::boolean, ReduceOp::premul_sum(2.0),
       "op is premul_sum, expected an operation that bool supports"},
      {"NoFactor", DType::float32, ReduceOp::premul_sum(std::vector<double>{}),
       "op has 0 factors, expected 1, or 2"},
      {"KindWithoutItsFactor", DType::float32, ReduceOp(ReduceKind::premul_sum),
       "op has 0 factors, expected 1, or 2"},
      {"TooManyFactors", DType::float64, ReduceOp::premul_sum({1.0, 2.0, 3.0}),
       "op has 3 factors, expected 1, or 2"},
      {"FractionOfIntegers", DType::int32, ReduceOp::premul_sum({1.0, 0.5}),
       "op has the factor 0.5 at 1, expected a whole number"},
      {"NoNumberOfIntegers", DType::int8, ReduceOp::premul_sum(nan), "expected a whole number"},
      {"TooLargeForIntegers", DType::int64, ReduceOp::premul_sum(1e17), "from -2^53 to 2^53 for int64"},
      {"CompiledOfComplex", DType::complex64, compiled_difference(),
       "op is compiled, expected an operation that complex64 supports"},
      {"CompiledWithoutText", DType::float32, ReduceOp(ReduceKind::compiled),
       "op is compiled, but has no source text"},
      {"NoOperation", DType::float32, ReduceOp(static_cast<ReduceKind>(77)),
       "op is 77, expected an operation"},
  };
  std::vector<BadCall> calls;
  for (const CollectiveForm form : reducing_forms()) {
    const std::string function(name_of(form));
    const std::int64_t out_elements = moves_parts(form.collective) ? 6 : 12;
    for (const WrongOperation& wrong : kinds) {
      calls.push_back({fmt::format("{}_{}", function, wrong.name),
                       [=](Scene& scene) -> CommunicatorCall {
                         const auto rows = [&](std::int64_t elements) -> std::vector<Row> {
                           return {{scene.tensor({elements}, 0, wrong.dtype)},
                                   {scene.tensor({elements}, 1, wrong.dtype)}};
                         };
                         const MemberCall call{
                             .inputs = rows(12), .out = rows(out_elements), .operation = wrong.op};
                         return [=](Communicator& communicator) { make_call(communicator, form, call); };
                       },
                       {function + ": ", wrong.message}});
    }
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorOperations, wrong_operations);

/// Of no tensors, too.
std::vector<BadCall> wrong_operations_of_nothing() {
  std::vector<BadCall> calls;
  for (const CollectiveForm form : reducing_forms()) {
    if (!form.takes_lists) continue;
    const std::string function(name_of(form));
    calls.push_back({function,
                     [form](Scene& /*scene*/) -> CommunicatorCall {
                       const std::vector<Row> none(2);
                       const MemberCall call{
                           .inputs = none, .out = none, .operation = ReduceOp(ReduceKind::compiled)};
                       return [=](Communicator& communicator) { make_call(communicator, form, call); };
                     },
                     {function + ": ", "op is compiled, but has no source text"}});
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorOperationsOfNothing, wrong_operations_of_nothing);

}  // namespace
}  // namespace tutti::test::ranks
