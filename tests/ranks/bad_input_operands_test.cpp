#include "ranks/bad_call.hpp"
#include "ranks/methods.hpp"
#include "support/environment.hpp"

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

/// Every method of a communicator with one operand that is wrong by itself, or unlike the others.
namespace tutti::test::ranks {
namespace {

Sizes sizes_of(const Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

/// What can be wrong with an operand, and what messages say of it.
struct Fault {
  std::string name;
  std::function<Tensor(Scene& scene, const Tensor& right)> spoil;
  std::vector<std::string> message;
};

/// A new tensor like the right one, but of this element type and device.
auto another(Device device, DType dtype = DType::float32) {
  return [=](Scene& scene, const Tensor& right) { return scene.tensor(sizes_of(right), device, dtype); };
}
/// The same, said to be on `claimed`.
auto another_claimed(Device device, Device claimed, KeepStorage keep_storage) {
  return [=](Scene& scene, const Tensor& right) {
    return claimed_for(scene.tensor(sizes_of(right), device), claimed, keep_storage);
  };
}

std::vector<Fault> faults_on(int device) {
  const Device here(device);
  const Device elsewhere(1 - device);
  const std::string is_expected_here = fmt::format("expected {}", to_string(here));
  const std::string claims = fmt::format("claims to be on {}", to_string(here));
  const std::string belongs = fmt::format("belongs to {}", to_string(elsewhere));
  return {
      {"Undefined", [](Scene&, const Tensor&) { return Tensor(); }, {"undefined", "expected a tensor"}},
      {"OfAnotherElementType", another(here, DType::int16), {"int16", "float32"}},
      {"OfIntegersOfTheSameSize", another(here, DType::int32), {"int32", "float32"}},
      {"OnTheHost", another(Device::host()), {"is on host", is_expected_here}},
      {"OnAnotherDevice",
       another(elsewhere),
       {fmt::format("is on {}", to_string(elsewhere)), is_expected_here}},
      {"OnAnUnknownDevice", another_claimed(here, 999, KeepStorage::yes), {"999", "0 to #last"}},
      {"OnANegativeDevice", another_claimed(here, -5, KeepStorage::yes), {"-5", "0 to #last"}},
      {"InMemoryOfAnotherDevice", another_claimed(elsewhere, here, KeepStorage::no), {claims, belongs}},
      {"InStorageOfAnotherDevice", another_claimed(elsewhere, here, KeepStorage::yes), {claims, belongs}},
      {"InMemoryOfTheHost", another_claimed(Device::host(), here, KeepStorage::no), {claims, "to the host"}},
      {"LargerThanItsAllocation",
       [](Scene&, const Tensor& right) { return oversized(right, KeepStorage::no); },
       {"1073741824 bytes", "allocation holds"}},
      {"LargerThanItsStorage",
       [](Scene&, const Tensor& right) { return oversized(right, KeepStorage::yes); },
       {"1073741824 bytes", "storage holds"}},
      {"AtNoAddress",
       [=](Scene&, const Tensor& right) { return Tensor(TensorView(nullptr, right.layout(), here)); },
       {"null address", "bytes"}},
  };
}

Fault sharing_elements(Device device) {
  return {"SharingElements",
          [=](Scene& scene, const Tensor& right) {
            return scene.tensor(sizes_of(right), device, DType::float32, Placement::expanded);
          },
          {"share memory", "expected none"}};
}

/// One longer in the last dimension, which no method cuts here.
Fault longer(const Sizes& right, Device device) {
  Sizes wrong = right;
  ++wrong.back();
  return {"OfOtherSizes",
          [=](Scene& scene, const Tensor&) { return scene.tensor(wrong, device); },
          {to_string(wrong), fmt::format("expected {}", to_string(right))}};
}

Fault flat(Device device) {
  return {"OfAnotherRank",
          [=](Scene& scene, const Tensor& right) { return scene.tensor({right.numel()}, device); },
          {"has", "expected"}};
}

std::vector<Fault> faults_of(const Method& method, const Place& place, bool is_output) {
  const Device device(static_cast<int>(place.member));
  std::vector<Fault> faults = faults_on(device.index());
  if (is_output) faults.push_back(sharing_elements(device));
  // Only numbers of elements count there.
  if (is_output && method.function == "all_gather") return faults;
  faults.push_back(longer((is_output ? method.out : method.inputs)[place.member][place.index], device));
  faults.push_back(flat(device));
  return faults;
}

BadCall spoilt(const Method& method, const Place& place, const Fault& fault) {
  std::vector<std::string> message{method.function + ": ", place.argument};
  message.insert(message.end(), fault.message.begin(), fault.message.end());
  return {test_name(fmt::format("{}_{}_{}", method.name, place.argument, fault.name)),
          [=](Scene& scene) -> CommunicatorCall {
            Operands operands = method.operands(scene);
            Tensor& operand = place.in(operands);
            operand = fault.spoil(scene, operand);
            return [=](Communicator& communicator) { method.call(communicator, operands, method.root, {}); };
          },
          message};
}

std::vector<BadCall> every_operand_with_every_fault() {
  std::vector<BadCall> calls;
  for (const Method& method : methods()) {
    for (const bool is_output : {false, true}) {
      for (const Place& place : is_output ? method.outputs_to_spoil : method.inputs_to_spoil) {
        for (const Fault& fault : faults_of(method, place, is_output))
          calls.push_back(spoilt(method, place, fault));
      }
    }
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorOperands, every_operand_with_every_fault);

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
