// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/methods.hpp"

#include "support/collectives/member_call.hpp"

#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::test::ranks {
namespace {

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
constexpr std::size_t members = 2;

using Rows = std::vector<std::vector<Sizes>>;
using Call = std::function<void(Communicator&, const Operands&, int root, StreamList streams)>;

/// Describes the operands of a collective's methods, as its traits have them.
class Shape {
 public:
  explicit Shape(CollectiveForm form) : form_(form), traits_(traits_of(form.collective)) {}

  [[nodiscard]] Method method(std::string name, Call call) const {
    return {std::move(name),
            std::string(name_of(form_)),
            input_rows(),
            output_rows(),
            places(inputs_name(), inputs, is_from_one() ? 0 : 1),
            outputs_to_spoil(),
            lists(),
            root(),
            std::move(call)};
  }

 private:
  [[nodiscard]] bool is_to_one() const { return traits_.output == CollectiveOutput::one; }
  [[nodiscard]] bool is_from_one() const { return traits_.has_root && !is_to_one(); }
  [[nodiscard]] bool is_gather() const { return is_to_one() && !traits_.reduces; }
  [[nodiscard]] bool is_exchange() const {
    return traits_.output == CollectiveOutput::part && !traits_.has_root && !traits_.reduces;
  }
  [[nodiscard]] int root() const { return traits_.has_root ? (is_to_one() ? 1 : 0) : -1; }

  [[nodiscard]] std::vector<Sizes> whole() const {
    if (!form_.takes_lists) return {{4, 6}};
    return {{4, 6}, {moves_parts(form_.collective) ? 6 : 7, 3}};
  }
  [[nodiscard]] std::vector<Sizes> part() const {
    if (is_exchange()) return whole();
    return form_.takes_lists ? std::vector<Sizes>{{2, 6}, {3, 3}} : std::vector<Sizes>{{2, 6}};
  }
  /// Parts are joined to wholes, or wholes cut into parts.
  [[nodiscard]] bool joins() const {
    return moves_parts(form_.collective) && traits_.output != CollectiveOutput::part;
  }
  [[nodiscard]] Rows input_rows() const {
    return Rows(is_from_one() ? 1 : members, joins() ? part() : whole());
  }
  [[nodiscard]] Rows output_rows() const {
    Rows rows(members, traits_.output == CollectiveOutput::part ? part() : whole());
    if (is_to_one()) rows.front().clear();
    return rows;
  }

  [[nodiscard]] std::string inputs_name() const {
    if (is_from_one()) return form_.takes_lists ? "tensors" : "tensor";
    return is_gather() ? "tensors" : "inputs";
  }
  /// Names a member's tensor, or those of its list.
  [[nodiscard]] std::vector<Place> places(const std::string& argument, std::vector<Row> Operands::*side,
                                          std::size_t member) const {
    // Where one member alone has such an operand, the argument is not a list of members' ones.
    const bool is_single = side == inputs ? is_from_one() : is_gather();
    const std::string name = is_single ? argument : fmt::format("{}[{}]", argument, member);
    if (!form_.takes_lists) return {{name, side, member}};
    return {{name + "[0]", side, member, 0}, {name + "[1]", side, member, 1}};
  }
  /// The first output too, where outputs are compared with inputs, and not with one another.
  [[nodiscard]] std::vector<Place> outputs_to_spoil() const {
    std::vector<Place> all = places("out", out, 1);
    if (traits_.has_root || (traits_.reduces && traits_.output == CollectiveOutput::part)) return all;
    for (const Place& place : places("out", out, 0)) all.push_back(place);
    return all;
  }
  [[nodiscard]] std::vector<MemberList> lists() const {
    if (is_from_one()) return {{"out", out}};
    if (is_gather()) return {{inputs_name(), inputs}};
    return {{inputs_name(), inputs}, {"out", out}};
  }

  CollectiveForm form_;
  const CollectiveTraits& traits_;
};

/// The method of a form with given outputs. `operation`: of one that reduces.
Method method_of(CollectiveForm form, const ReduceOp& operation) {
  return Shape(form).method(
      std::string(name_of(form)),
      [=](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
        const MemberCall call{
            .inputs = operands.inputs, .out = operands.out, .operation = operation, .root = root};
        make_call(communicator, form, call, streams);
      });
}

/// The method of a reduction that is named as a sum.
Method sum_of(CollectiveForm form, Call call) {
  const std::string name(name_of(form.collective));
  return Shape(form).method(name + (form.takes_lists ? "_add_coalesced" : "_add"), std::move(call));
}

/// A broadcast whose tensors are all outputs.
Method broadcast_in_place(CollectiveForm form) {
  Method method = method_of(form, ReduceOp::sum);
  method.name += "_in_place";
  method.inputs.clear();
  method.inputs_to_spoil.clear();
  for (Place& place : method.outputs_to_spoil) place.argument.replace(0, 3, "tensors");
  method.lists = {{"tensors", out}};
  return method;
}

/// A method that takes sizes: member 0 has twice as much as member 1 in its input, its output or both.
Method uneven(CollectiveForm form, const std::string& variant, Rows given, Rows written, Call call) {
  Method method = Shape(form).method(std::string(name_of(form)) + variant, std::move(call));
  method.inputs = std::move(given);
  method.out = std::move(written);
  return method;
}

std::vector<Method> broadcasts_in_place() {
  return {broadcast_in_place(Collective::broadcast), broadcast_in_place(coalesced(Collective::broadcast))};
}

std::vector<Method> plain_methods() {
  std::vector<Method> methods;
  for (const CollectiveForm form : all_forms())
    methods.push_back(method_of(form, form.takes_lists ? ReduceOp::avg : ReduceOp::max));
  return methods;
}

std::vector<Method> sums() {
  return {
      sum_of(Collective::reduce,
             [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
               communicator.reduce_add(firsts(operands.inputs), firsts(operands.out), root, streams);
             }),
      sum_of(coalesced(Collective::reduce),
             [](Communicator& communicator, const Operands& operands, int root, StreamList streams) {
               communicator.reduce_add_coalesced(operands.inputs, operands.out, root, streams);
             }),
      sum_of(Collective::all_reduce,
             [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
               communicator.all_reduce_add(firsts(operands.inputs), firsts(operands.out), streams);
             }),
      sum_of(coalesced(Collective::all_reduce),
             [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
               communicator.all_reduce_add_coalesced(operands.inputs, operands.out, streams);
             }),
      sum_of(Collective::reduce_scatter,
             [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
               communicator.reduce_scatter_add(firsts(operands.inputs), firsts(operands.out), streams);
             }),
  };
}

std::vector<Method> with_sizes() {
  const std::vector<Sizes> one{{4, 6}};
  const std::vector<Sizes> half{{2, 6}};
  const std::vector<Sizes> both{{6, 6}};
  return {
      uneven(Collective::all_to_all, "_with_sizes", {one, half}, {half, one},
             [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
               communicator.all_to_all(firsts(operands.inputs), firsts(operands.out), {{5, 19}, {7, 5}},
                                       {{5, 7}, {19, 5}}, streams);
             }),
      uneven(Collective::all_gather, "_with_sizes", {one, half}, {both, both},
             [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
               communicator.all_gather(firsts(operands.inputs), firsts(operands.out), {24, 12}, streams);
             }),
      uneven(Collective::all_gather, "_along", {one, half}, {both, both},
             [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
               communicator.all_gather(firsts(operands.inputs), firsts(operands.out), {4, 2}, 0, streams);
             }),
      uneven(Collective::reduce_scatter, "_along", {both, both}, {one, half},
             [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
               communicator.reduce_scatter(firsts(operands.inputs), firsts(operands.out), ReduceOp::max,
                                           {4, 2}, 0, streams);
             }),
      uneven(Collective::reduce_scatter, "_with_sizes", {both, both}, {one, half},
             [](Communicator& communicator, const Operands& operands, int, StreamList streams) {
               communicator.reduce_scatter(firsts(operands.inputs), firsts(operands.out), ReduceOp::max,
                                           {24, 12}, streams);
             }),
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
    std::vector<Method> list = plain_methods();
    for (const auto& more : {broadcasts_in_place(), sums(), with_sizes()})
      list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  return all;
}

}  // namespace tutti::test::ranks
