// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/methods.hpp"

#include <ostream>

namespace tutti::test::ranks {
namespace {

/// The first of each row.
Row firsts(const std::vector<Row>& rows) {
  Row tensors;
  for (const Row& row : rows) tensors.push_back(row.empty() ? Tensor() : row.front());
  return tensors;
}

std::vector<Row> tensors_of(Scene& scene, const std::vector<std::vector<Sizes>>& rows) {
  std::vector<Row> tensors;
  for (const std::vector<Sizes>& row : rows) {
    const Device device(static_cast<int>(tensors.size()));
    Row& next = tensors.emplace_back();
    for (const Sizes& sizes : row) next.push_back(scene.tensor(sizes, device));
  }
  return tensors;
}

constexpr auto inputs = &Operands::inputs;
constexpr auto out = &Operands::out;

const std::vector<Sizes> one{{4, 6}};
const std::vector<Sizes> two{{4, 6}, {7, 3}};
const std::vector<Sizes> half{{2, 6}};
const std::vector<Sizes> twice{{8, 6}};
const std::vector<Sizes> three_halves{{6, 6}};
const std::vector<Sizes> two_even{{4, 6}, {6, 3}};
const std::vector<Sizes> two_halves{{2, 6}, {3, 3}};

std::vector<Method> broadcasts() {
  return {
      {"broadcast_in_place",
       "broadcast",
       {},
       {one, one},
       {},
       {{"tensors[1]", out, 1}},
       {{"tensors", out}},
       0,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.broadcast(firsts(operands.out), root, streams);
       }},
      {"broadcast",
       "broadcast",
       {one},
       {one, one},
       {{"tensor", inputs, 0}},
       {{"out[1]", out, 1}},
       {{"out", out}},
       0,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.broadcast(operands.inputs[0][0], firsts(operands.out), root, streams);
       }},
      {"broadcast_coalesced_in_place",
       "broadcast_coalesced",
       {},
       {two, two},
       {},
       {{"tensors[1][1]", out, 1, 1}},
       {{"tensors", out}},
       0,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.broadcast_coalesced(operands.out, root, streams);
       }},
      {"broadcast_coalesced",
       "broadcast_coalesced",
       {two},
       {two, two},
       {{"tensors[1]", inputs, 0, 1}},
       {{"out[1][0]", out, 1, 0}},
       {{"out", out}},
       0,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.broadcast_coalesced(operands.inputs[0], operands.out, root, streams);
       }},
  };
}

std::vector<Method> sums() {
  return {
      {"reduce_add",
       "reduce",
       {one, one},
       {{}, one},
       {{"inputs[1]", inputs, 1}},
       {{"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       1,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.reduce_add(firsts(operands.inputs), firsts(operands.out), root, streams);
       }},
      {"reduce_add_coalesced",
       "reduce_coalesced",
       {two, two},
       {{}, two},
       {{"inputs[1][1]", inputs, 1, 1}},
       {{"out[1][1]", out, 1, 1}},
       {{"inputs", inputs}, {"out", out}},
       1,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.reduce_add_coalesced(operands.inputs, operands.out, root, streams);
       }},
      {"all_reduce_add",
       "all_reduce",
       {one, one},
       {one, one},
       {{"inputs[1]", inputs, 1}},
       {{"out[0]", out, 0}, {"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_reduce_add(firsts(operands.inputs), firsts(operands.out), streams);
       }},
      {"all_reduce_add_coalesced",
       "all_reduce_coalesced",
       {two, two},
       {two, two},
       {{"inputs[1][0]", inputs, 1, 0}},
       {{"out[0][1]", out, 0, 1}, {"out[1][0]", out, 1, 0}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_reduce_add_coalesced(operands.inputs, operands.out, streams);
       }},
      {"reduce_scatter_add",
       "reduce_scatter",
       {one, one},
       {half, half},
       {{"inputs[1]", inputs, 1}},
       {{"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.reduce_scatter_add(firsts(operands.inputs), firsts(operands.out), streams);
       }},
  };
}

std::vector<Method> reductions() {
  return {
      {"reduce",
       "reduce",
       {one, one},
       {{}, one},
       {{"inputs[1]", inputs, 1}},
       {{"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       1,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.reduce(firsts(operands.inputs), firsts(operands.out), ReduceOp::max, root, streams);
       }},
      {"reduce_coalesced",
       "reduce_coalesced",
       {two, two},
       {{}, two},
       {{"inputs[1][1]", inputs, 1, 1}},
       {{"out[1][1]", out, 1, 1}},
       {{"inputs", inputs}, {"out", out}},
       1,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.reduce_coalesced(operands.inputs, operands.out, ReduceOp::avg, root, streams);
       }},
      {"all_reduce",
       "all_reduce",
       {one, one},
       {one, one},
       {{"inputs[1]", inputs, 1}},
       {{"out[0]", out, 0}, {"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_reduce(firsts(operands.inputs), firsts(operands.out), ReduceOp::min, streams);
       }},
      {"all_reduce_coalesced",
       "all_reduce_coalesced",
       {two, two},
       {two, two},
       {{"inputs[1][0]", inputs, 1, 0}},
       {{"out[0][1]", out, 0, 1}, {"out[1][0]", out, 1, 0}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_reduce_coalesced(operands.inputs, operands.out, ReduceOp::avg, streams);
       }},
      {"reduce_scatter",
       "reduce_scatter",
       {one, one},
       {half, half},
       {{"inputs[1]", inputs, 1}},
       {{"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.reduce_scatter(firsts(operands.inputs), firsts(operands.out), ReduceOp::prod, streams);
       }},
      {"reduce_scatter_coalesced",
       "reduce_scatter_coalesced",
       {two_even, two_even},
       {two_halves, two_halves},
       {{"inputs[1][1]", inputs, 1, 1}},
       {{"out[1][1]", out, 1, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.reduce_scatter_coalesced(operands.inputs, operands.out, ReduceOp::sum, streams);
       }},
      {"all_gather_coalesced",
       "all_gather_coalesced",
       {two_halves, two_halves},
       {two_even, two_even},
       {{"inputs[1][1]", inputs, 1, 1}},
       {{"out[0][0]", out, 0, 0}, {"out[1][1]", out, 1, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_gather_coalesced(operands.inputs, operands.out, streams);
       }},
  };
}

std::vector<Method> exchanges() {
  return {
      {"all_to_all",
       "all_to_all",
       {one, one},
       {one, one},
       {{"inputs[1]", inputs, 1}},
       {{"out[0]", out, 0}, {"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_to_all(firsts(operands.inputs), firsts(operands.out), streams);
       }},
      {"all_to_all_coalesced",
       "all_to_all_coalesced",
       {two_even, two_even},
       {two_even, two_even},
       {{"inputs[1][1]", inputs, 1, 1}},
       {{"out[0][0]", out, 0, 0}, {"out[1][1]", out, 1, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_to_all_coalesced(operands.inputs, operands.out, streams);
       }},
      {"all_to_all_with_sizes",
       "all_to_all",
       {one, half},
       {half, one},
       {{"inputs[1]", inputs, 1}},
       {{"out[0]", out, 0}, {"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_to_all(firsts(operands.inputs), firsts(operands.out), {{5, 19}, {7, 5}},
                                 {{5, 7}, {19, 5}}, streams);
       }},
      {"all_gather_with_sizes",
       "all_gather",
       {one, half},
       {three_halves, three_halves},
       {{"inputs[1]", inputs, 1}},
       {{"out[0]", out, 0}, {"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_gather(firsts(operands.inputs), firsts(operands.out), {24, 12}, streams);
       }},
      {"all_gather_along",
       "all_gather",
       {one, half},
       {three_halves, three_halves},
       {{"inputs[1]", inputs, 1}},
       {{"out[0]", out, 0}, {"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_gather(firsts(operands.inputs), firsts(operands.out), {4, 2}, 0, streams);
       }},
      {"reduce_scatter_along",
       "reduce_scatter",
       {three_halves, three_halves},
       {one, half},
       {{"inputs[1]", inputs, 1}},
       {{"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.reduce_scatter(firsts(operands.inputs), firsts(operands.out), ReduceOp::max, {4, 2}, 0,
                                     streams);
       }},
      {"reduce_scatter_with_sizes",
       "reduce_scatter",
       {three_halves, three_halves},
       {one, half},
       {{"inputs[1]", inputs, 1}},
       {{"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.reduce_scatter(firsts(operands.inputs), firsts(operands.out), ReduceOp::max, {24, 12},
                                     streams);
       }},
  };
}

std::vector<Method> joins_and_cuts() {
  return {
      {"all_gather",
       "all_gather",
       {one, one},
       {twice, twice},
       {{"inputs[1]", inputs, 1}},
       {{"out[0]", out, 0}, {"out[1]", out, 1}},
       {{"inputs", inputs}, {"out", out}},
       -1,
       [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
         communicator.all_gather(firsts(operands.inputs), firsts(operands.out), streams);
       }},
      {"scatter",
       "scatter",
       {one},
       {half, half},
       {{"tensor", inputs, 0}},
       {{"out[1]", out, 1}},
       {{"out", out}},
       0,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.scatter(operands.inputs[0][0], firsts(operands.out), root, 0, streams);
       }},
      {"gather",
       "gather",
       {one, one},
       {{}, twice},
       {{"tensors[1]", inputs, 1}},
       {{"out", out, 1}},
       {{"tensors", inputs}},
       1,
       [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
         communicator.gather(firsts(operands.inputs), operands.out[1][0], root, 0, streams);
       }},
  };
}

}  // namespace

Operands Method::operands(Scene& scene) const {
  return {ranks::tensors_of(scene, inputs), ranks::tensors_of(scene, out)};
}

std::ostream& operator<<(std::ostream& stream, const Method& method) {
  return stream << method.name;
}

const std::vector<Method>& methods() {
  static const std::vector<Method> all = [] {
    std::vector<Method> list = broadcasts();
    for (const auto& more : {sums(), reductions(), exchanges(), joins_and_cuts()})
      list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  return all;
}

}  // namespace tutti::test::ranks
