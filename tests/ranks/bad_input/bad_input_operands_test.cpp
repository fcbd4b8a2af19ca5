// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"
#include "ranks/bad_input/methods.hpp"
#include "support/collectives/flaws.hpp"
#include "support/environment.hpp"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Every method of a communicator with one operand that is wrong by itself, or unlike the others.
namespace tutti::test::ranks {
namespace {

Flaw flat(Device device) {
  return {"OfAnotherRank",
          [=](Scene& scene, const Tensor& right) { return scene.tensor({right.numel()}, device); },
          {"has", "expected"}};
}

std::vector<Flaw> flaws_of(const Method& method, const Place& place, bool is_output) {
  const Device here(static_cast<int>(place.member));
  const Device elsewhere(1 - here.index());
  const std::string expected = fmt::format("expected {}", to_string(here));
  std::vector<Flaw> flaws = flaws_of_memory(here, elsewhere);
  flaws.push_back({"OnTheHost", another(Device::host()), {"is on host", expected}});
  flaws.push_back(
      {"OnAnotherDevice", another(elsewhere), {fmt::format("is on {}", to_string(elsewhere)), expected}});
  for (Flaw& flaw : other_element_types(here)) flaws.push_back(std::move(flaw));
  if (is_output) flaws.push_back(sharing_elements(here));
  // Only numbers of elements count there.
  const bool is_flat = method.function.starts_with("all_gather") ||
                       method.function.starts_with("reduce_scatter") ||
                       method.function.starts_with("all_to_all");
  if (is_flat && !method.name.ends_with("_along")) {
    const Flaw long_one = longer((is_output ? method.out : method.inputs)[place.member][place.index], here);
    flaws.push_back({long_one.name, long_one.spoil, {"elements, expected"}});
    return flaws;
  }
  flaws.push_back(longer((is_output ? method.out : method.inputs)[place.member][place.index], here));
  flaws.push_back(flat(here));
  return flaws;
}

BadCall spoilt(const Method& method, const Place& place, const Flaw& flaw) {
  std::vector<std::string> message{method.function + ": ", place.argument};
  message.insert(message.end(), flaw.message.begin(), flaw.message.end());
  return {test_name(fmt::format("{}_{}_{}", method.name, place.argument, flaw.name)),
          [=](Scene& scene) -> CommunicatorCall {
            Operands operands = method.operands(scene);
            Tensor& operand = place.in(operands);
            operand = flaw.spoil(scene, operand);
            return [=](Communicator& communicator) { method.call(communicator, operands, method.root, {}); };
          },
          message};
}

std::vector<BadCall> every_operand_with_every_flaw() {
  std::vector<BadCall> calls;
  for (const Method& method : methods()) {
    for (const bool is_output : {false, true}) {
      for (const Place& place : is_output ? method.outputs_to_spoil : method.inputs_to_spoil) {
        for (const Flaw& flaw : flaws_of(method, place, is_output))
          calls.push_back(spoilt(method, place, flaw));
      }
    }
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorOperands, every_operand_with_every_flaw);

/// What the others are made from is right.
class UnspoiltOperands : public testing::TestWithParam<Method> {};
INSTANTIATE_TEST_SUITE_P(OfEveryMethod, UnspoiltOperands, testing::ValuesIn(methods()),
                         [](const auto& parameters) { return parameters.param.name; });

TEST_P(UnspoiltOperands, AreTaken) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  Communicator communicator(CommunicatorOptions{.devices = {0, 1}});
  Scene scene;
  const Operands operands = GetParam().operands(scene);
  GetParam().call(communicator, operands, GetParam().root, {});
  synchronize_all();
  EXPECT_TRUE(communicator.is_running());
}

}  // namespace
}  // namespace tutti::test::ranks
