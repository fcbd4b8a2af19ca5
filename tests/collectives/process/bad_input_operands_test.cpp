// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/bad_input.hpp"
#include "support/collectives/exercise.hpp"
#include "support/collectives/flaws.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Every collective with given outputs, as a call and in its persistent form, with operands that are wrong.
namespace tutti::test {
namespace {

constexpr std::int64_t rows = 8;
const Device root = 0;

/// A collective of devices 0 and 1, and what messages call its operands.
struct Form {
  std::string function;
  bool is_persistent;
  Exercise exercise;
  std::string first_input;
  std::string last_input;
  std::string first_output;
  std::string last_output;

  [[nodiscard]] bool has_one_source() const {
    return exercise.form.collective == Collective::broadcast ||
           exercise.form.collective == Collective::scatter;
  }
};

std::vector<Form> forms() {
  std::vector<Form> all;
  for (const bool is_persistent : {false, true}) {
    const auto add = [&](CollectiveForm form, std::pair<std::string, std::string> inputs,
                         std::pair<std::string, std::string> outputs,
                         const std::optional<ReduceOp>& op = std::nullopt) {
      const Exercise exercise = make_exercise(form, {0, 1}, rows, DType::float32, op);
      all.push_back({fmt::format("{}{}", is_persistent ? "persistent_" : "", exercise.function),
                     is_persistent, exercise, inputs.first, inputs.second, outputs.first, outputs.second});
    };
    add(Collective::broadcast, {"tensor", "tensor"}, {"out[0]", "out[0]"});
    add(coalesced(Collective::broadcast), {"tensors[0]", "tensors[3]"}, {"out[0][0]", "out[0][3]"});
    add(Collective::reduce, {"inputs[0]", "inputs[1]"}, {"out", "out"});
    add(coalesced(Collective::reduce), {"inputs[0][0]", "inputs[1][3]"}, {"out[0]", "out[3]"});
    add(Collective::reduce, {"inputs[0]", "inputs[1]"}, {"out", "out"}, ReduceOp::max);
    add(coalesced(Collective::reduce), {"inputs[0][0]", "inputs[1][3]"}, {"out[0]", "out[3]"}, ReduceOp::max);
    add(Collective::scatter, {"tensor", "tensor"}, {"out[0]", "out[0]"});
    add(Collective::gather, {"tensors[0]", "tensors[1]"}, {"out", "out"});
  }
  return all;
}

struct Operands {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

/// A call whose operands are right until `spoil` has had them.
template <class Spoil>
BadInput line(const Form& form, const std::string& name, Spoil spoil, std::vector<std::string> message) {
  message.push_back(form.function + ": ");
  return {test_name(fmt::format("{}_{}", form.function, name)),
          [=](Scene& scene) -> std::function<void()> {
            Operands operands;
            for (const Slot& slot : form.exercise.inputs)
              operands.inputs.push_back(scene.tensor(slot.sizes, slot.device));
            for (const Slot& slot : form.exercise.outputs)
              operands.outputs.push_back(scene.tensor(slot.sizes, slot.device));
            spoil(scene, operands);
            return [=] {
              if (form.is_persistent) {
                static_cast<void>(form.exercise.bind(operands.inputs, operands.outputs, {}));
              } else {
                form.exercise.write(operands.inputs, operands.outputs, {});
              }
            };
          },
          std::move(message)};
}

BadInput with_flaw(const Form& form, bool is_output, const Flaw& flaw) {
  const std::string& argument = is_output ? form.last_output : form.last_input;
  std::vector<std::string> message = flaw.message;
  message.push_back(argument);
  return line(
      form, fmt::format("{}_{}", argument, flaw.name),
      [=](Scene& scene, Operands& operands) {
        Tensor& operand = (is_output ? operands.outputs : operands.inputs).back();
        operand = flaw.spoil(scene, operand);
      },
      message);
}

std::vector<BadInput> every_operand_with_every_flaw() {
  std::vector<BadInput> lines;
  for (const Form& form : forms()) {
    for (const bool is_output : {false, true}) {
      const Slot& slot = (is_output ? form.exercise.outputs : form.exercise.inputs).back();
      std::vector<Flaw> flaws = flaws_of_memory(slot.device, 1 - slot.device.index());
      if (is_output) flaws.push_back(sharing_elements(slot.device));
      // Outputs are blamed for what they do not have in common with their source.
      if (is_output || !form.has_one_source()) {
        for (Flaw& flaw : other_element_types(slot.device)) flaws.push_back(std::move(flaw));
        flaws.push_back(longer(slot.sizes, slot.device));
      }
      for (const Flaw& flaw : flaws) lines.push_back(with_flaw(form, is_output, flaw));
    }
  }
  return lines;
}
TUTTI_BAD_INPUT_SUITE(GivenOperands, every_operand_with_every_flaw);

std::vector<BadInput> lists_and_overlaps() {
  std::vector<BadInput> lines;
  for (const Form& form : forms()) {
    const std::string& first = form.has_one_source() ? form.first_output : form.first_input;
    lines.push_back(line(form, "NoOperands",
                         [=](Scene&, Operands& operands) {
                           (form.has_one_source() ? operands.outputs : operands.inputs).clear();
                         },
                         {first.substr(0, first.find('[')) + " is empty", "at least one"}));
    lines.push_back(line(form, "OutputOverlapsAnInput",
                         [=](Scene& scene, Operands& operands) {
                           for (Tensor& output : operands.outputs) output = another(root)(scene, output);
                           const std::int64_t length = operands.outputs[0].size(0);
                           const Tensor memory = scene.tensor({length + 1, 3}, root);
                           operands.inputs[0] = memory.narrow(0, 0, rows);
                           operands.outputs[0] = memory.narrow(0, 1, length);
                         },
                         {form.first_output, form.first_input, "overlaps"}));
  }
  return lines;
}
TUTTI_BAD_INPUT_SUITE(ListsAndOverlaps, lists_and_overlaps);

/// What a call copies first, or waits for, and a replay cannot.
std::vector<BadInput> lines_of_persistent_forms() {
  std::vector<BadInput> lines;
  for (const Form& form : forms()) {
    if (!form.is_persistent) continue;
    lines.push_back(line(form, "InputWithGaps",
                         [](Scene& scene, Operands& operands) {
                           Tensor& input = operands.inputs[0];
                           input = another(input.device(), DType::float32, Placement::gapped)(scene, input);
                         },
                         {form.first_input + " has strides [6, 1]", "expected [3, 1]"}));
    lines.push_back(line(form, "OutputInAnotherOrder",
                         [](Scene& scene, Operands& operands) {
                           Tensor& output = operands.outputs[0];
                           output =
                               another(output.device(), DType::float32, Placement::transposed)(scene, output);
                         },
                         {form.first_output + " has strides [1, ", "expected [3, 1]"}));
    const bool is_gather = form.exercise.form == Collective::gather;
    lines.push_back(
        line(form, "OutputsOnTheHost",
             [](Scene& scene, Operands& operands) {
               for (Tensor& output : operands.outputs) output = another(Device::host())(scene, output);
             },
             {form.first_output, is_gather ? "pageable host memory, expected pinned" : "is on the host"}));
    lines.push_back(line(form, "InputsOnTheHost",
                         [](Scene& scene, Operands& operands) {
                           for (Tensor& input : operands.inputs)
                             input = another(Device::host())(scene, input);
                         },
                         {form.first_input, form.has_one_source() ? "pageable host memory, expected pinned"
                                                                  : "is on the host"}));
  }
  return lines;
}
TUTTI_BAD_INPUT_SUITE(PersistentForms, lines_of_persistent_forms);

template <class Call>
BadInput cut_line(const char* name, Call call, std::vector<std::string> message) {
  return {name,
          [=](Scene& scene) -> std::function<void()> {
            return [=, whole = scene.tensor({8, 6}, 0),
                    parts = std::vector<Tensor>{scene.tensor({4, 6}, 0), scene.tensor({4, 6}, 1)}] {
              static_cast<void>(call(whole, parts));
            };
          },
          std::move(message)};
}

std::vector<BadInput> persistent_cuts() {
  return {
      cut_line("ScatterDimensionTooLarge",
               [](const Tensor& whole, TensorList parts) { return persistent_scatter(whole, parts, 2); },
               {"persistent_scatter: ", "dim is 2", "expected -2 to 1"}),
      cut_line(
          "ScatterSizesDoNotAddUp",
          [](const Tensor& whole, TensorList parts) { return persistent_scatter(whole, parts.first(1)); },
          {"persistent_scatter: ", "sizes of out", "add up to 4", "expected 8"}),
      cut_line("GatherDimensionTooSmall",
               [](const Tensor& whole, TensorList parts) { return persistent_gather(parts, whole, -3); },
               {"persistent_gather: ", "dim is -3", "expected -2 to 1"}),
      cut_line("GatherSizesDoNotAddUp",
               [](const Tensor& whole, TensorList parts) { return persistent_gather(parts.first(1), whole); },
               {"persistent_gather: ", "out has sizes [8, 6]", "expected [4, 6]"}),
  };
}
TUTTI_BAD_INPUT_SUITE(PersistentCuts, persistent_cuts);

}  // namespace
}  // namespace tutti::test
