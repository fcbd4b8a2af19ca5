// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/flaws.hpp"

#include <fmt/format.h>

namespace tutti::test {
namespace {

/// A tensor on `device` that is said to be on `claimed`.
auto claiming(Device device, Device claimed, KeepStorage keep_storage) {
  return [make = another(device), claimed, keep_storage](Scene& scene, const Tensor& right) {
    return claimed_for(make(scene, right), claimed, keep_storage);
  };
}

}  // namespace

std::vector<Flaw> flaws_of_memory(Device here, Device elsewhere) {
  const std::string claims = fmt::format("claims to be on {}", to_string(here));
  const std::string belongs = fmt::format("belongs to {}", to_string(elsewhere));
  return {
      {"Undefined", [](Scene&, const Tensor&) { return Tensor(); }, {"undefined", "expected a tensor"}},
      {"OnAnUnknownDevice", claiming(here, 999, KeepStorage::yes), {"999", "0 to #last"}},
      {"InMemoryOfAnotherDevice", claiming(elsewhere, here, KeepStorage::no), {claims, belongs}},
      {"InStorageOfAnotherDevice", claiming(elsewhere, here, KeepStorage::yes), {claims, belongs}},
      {"InMemoryOfTheHost", claiming(Device::host(), here, KeepStorage::no), {claims, "belongs to the host"}},
      {"LargerThanItsAllocation",
       [](Scene&, const Tensor& right) { return oversized(right, KeepStorage::no); },
       {"1073741824 bytes", "allocation holds"}},
      {"LargerThanItsStorage",
       [](Scene&, const Tensor& right) { return oversized(right, KeepStorage::yes); },
       {"1073741824 bytes", "storage holds"}},
      {"AtNoAddress",
       [here](Scene&, const Tensor& right) { return Tensor(TensorView(nullptr, right.layout(), here)); },
       {"null address", "bytes"}},
  };
}

Flaw sharing_elements(Device device) {
  return {"SharingElements",
          another(device, DType::float32, Placement::expanded),
          {"share memory", "expected none"}};
}

std::vector<Flaw> other_element_types(Device device) {
  return {{"OfAnotherElementType", another(device, DType::int16), {"int16", "expected float32"}},
          {"OfIntegersOfTheSameSize", another(device, DType::int32), {"int32", "expected float32"}}};
}

Flaw longer(Sizes right, Device device) {
  Sizes wrong = right;
  ++wrong.back();
  return {"OfOtherSizes",
          [=](Scene& scene, const Tensor&) { return scene.tensor(wrong, device); },
          {to_string(wrong), fmt::format("expected {}", to_string(right))}};
}

std::function<Tensor(Scene&, const Tensor&)> another(Device device, DType dtype, Placement placement) {
  return [=](Scene& scene, const Tensor& right) {
    return scene.tensor({right.sizes().begin(), right.sizes().end()}, device, dtype, placement);
  };
}

}  // namespace tutti::test
