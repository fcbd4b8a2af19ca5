// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"
#include "ranks/bad_input/methods.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "tutti/reduce_op.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Every method of a communicator that takes an operation, with one that its elements do not have, or with
/// factors that fit neither them nor the members.
namespace tutti::test::ranks {
namespace {

struct Reducing {
  std::string function;
  std::int64_t out_elements;  ///< of 12 that each member has
  std::function<void(Communicator&, const Row& inputs, const Row& out, const ReduceOp&)> call;
};

std::vector<Row> lists_of(const Row& row) {
  return {{row[0]}, {row[1]}};
}

const std::vector<Reducing>& reducing_methods() {
  static const std::vector<Reducing> all{
      {"reduce", 12,
       [](Communicator& communicator, const Row& inputs, const Row& out, const ReduceOp& op) {
         communicator.reduce(inputs, out, op, 0);
       }},
      {"all_reduce", 12,
       [](Communicator& communicator, const Row& inputs, const Row& out, const ReduceOp& op) {
         communicator.all_reduce(inputs, out, op);
       }},
      {"reduce_scatter", 6,
       [](Communicator& communicator, const Row& inputs, const Row& out, const ReduceOp& op) {
         communicator.reduce_scatter(inputs, out, op);
       }},
      {"reduce_coalesced", 12,
       [](Communicator& communicator, const Row& inputs, const Row& out, const ReduceOp& op) {
         communicator.reduce_coalesced(lists_of(inputs), lists_of(out), op, 0);
       }},
      {"all_reduce_coalesced", 12,
       [](Communicator& communicator, const Row& inputs, const Row& out, const ReduceOp& op) {
         communicator.all_reduce_coalesced(lists_of(inputs), lists_of(out), op);
       }},
      {"reduce_scatter_coalesced", 6,
       [](Communicator& communicator, const Row& inputs, const Row& out, const ReduceOp& op) {
         communicator.reduce_scatter_coalesced(lists_of(inputs), lists_of(out), op);
       }},
  };
  return all;
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
       "op is min, which elements of complex64 do not have"},
      {"LargestOfComplex", DType::complex128, ReduceOp::max,
       "op is max, which elements of complex128 do not have"},
      {"BitsOfFloats", DType::float32, ReduceOp::band, "op is band, which elements of float32 do not have"},
      {"BitsOfHalves", DType::bfloat16, ReduceOp::bxor, "op is bxor, which elements of bfloat16 do not have"},
      {"AverageOfTruth", DType::boolean, ReduceOp::avg, "op is avg, which elements of bool do not have"},
      {"ScaledTruth", DType::boolean, ReduceOp::premul_sum(2.0),
       "op is premul_sum, which elements of bool do not have"},
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
       "op is compiled, which elements of complex64 do not have"},
      {"CompiledWithoutText", DType::float32, ReduceOp(ReduceKind::compiled),
       "op is compiled, but has no source text"},
      {"NoOperation", DType::float32, ReduceOp(static_cast<ReduceKind>(77)),
       "op is 77, expected an operation"},
  };
  std::vector<BadCall> calls;
  for (const Reducing& method : reducing_methods()) {
    for (const WrongOperation& wrong : kinds) {
      calls.push_back(
          {fmt::format("{}_{}", method.function, wrong.name),
           [=](Scene& scene) -> CommunicatorCall {
             const Row inputs{scene.tensor({12}, 0, wrong.dtype), scene.tensor({12}, 1, wrong.dtype)};
             const Row out{scene.tensor({method.out_elements}, 0, wrong.dtype),
                           scene.tensor({method.out_elements}, 1, wrong.dtype)};
             return [=](Communicator& communicator) { method.call(communicator, inputs, out, wrong.op); };
           },
           {method.function + ": ", wrong.message}});
    }
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorOperations, wrong_operations);

/// Of no tensors, too.
std::vector<BadCall> wrong_operations_of_nothing() {
  using Lists = std::vector<Row>;
  using Call = std::function<void(Communicator&, const Lists&, const ReduceOp&)>;
  const std::vector<std::pair<std::string, Call>> methods{
      {"reduce_coalesced", [](Communicator& communicator, const Lists& none,
                              const ReduceOp& op) { communicator.reduce_coalesced(none, none, op, 0); }},
      {"all_reduce_coalesced", [](Communicator& communicator, const Lists& none,
                                  const ReduceOp& op) { communicator.all_reduce_coalesced(none, none, op); }},
      {"reduce_scatter_coalesced",
       [](Communicator& communicator, const Lists& none, const ReduceOp& op) {
         communicator.reduce_scatter_coalesced(none, none, op);
       }},
  };
  std::vector<BadCall> calls;
  for (const auto& [function, call] : methods) {
    calls.push_back({function,
                     [call = call](Scene& /*scene*/) -> CommunicatorCall {
                       return [call](Communicator& communicator) {
                         call(communicator, Lists(2), ReduceOp(ReduceKind::compiled));
                       };
                     },
                     {function + ": ", "op is compiled, but has no source text"}});
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorOperationsOfNothing, wrong_operations_of_nothing);

}  // namespace
}  // namespace tutti::test::ranks
