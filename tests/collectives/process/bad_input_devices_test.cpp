// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/bad_input.hpp"
#include "support/collectives/collective_test.hpp"

#include <fmt/format.h>

/// Device indices that only look like others when a narrower integer holds them.
namespace tutti::test {
namespace {

const Sizes shape{4, 3};

using CallWithDevice = std::function<void(const Tensor& tensor, Device device)>;

std::vector<BadInput> large_indices() {
  struct Line {
    std::string name;
    std::string argument;
    CallWithDevice call;
  };
  const std::vector<Line> lines{
      {"broadcast", "devices[1]",
       [](const Tensor& t, Device d) {
         static_cast<void>(broadcast(t, {0, d}));
       }},
      {"broadcast_coalesced", "devices[1]",
       [](const Tensor& t, Device d) {
         static_cast<void>(broadcast_coalesced({t}, DeviceList{1, d}));
       }},
      {"reduce_add", "destination", [](const Tensor& t, Device d) { static_cast<void>(reduce_add({t}, d)); }},
      {"reduce_add_coalesced", "destination",
       [](const Tensor& t, Device d) {
         static_cast<void>(reduce_add_coalesced(std::vector<std::vector<Tensor>>{{t}}, d));
       }},
      {"scatter", "devices[0]",
       [](const Tensor& t, Device d) {
         static_cast<void>(scatter(t, {d, 0}));
       }},
      {"gather", "destination", [](const Tensor& t, Device d) { static_cast<void>(gather({t}, 0, d)); }},
      {"explain", "root",
       [](const Tensor&, Device d) { static_cast<void>(explain({.bytes = 64, .root = d})); }},
      {"explain", "devices[1]",
       [](const Tensor&, Device d) {
         static_cast<void>(explain({.bytes = 64, .devices = {0, d}}));
       }},
      {"broadcast", "tensor",
       [](const Tensor& t, Device d) {
         static_cast<void>(broadcast(claimed_for(t, d, KeepStorage::yes), {0}));
       }},
      {"broadcast", "out[0]",
       [](const Tensor& t, Device d) { broadcast(t, {claimed_for(t, d, KeepStorage::yes)}); }},
  };
  std::vector<BadInput> inputs;
  for (const Line& line : lines) {
    for (const int index : {32768, 65535, 65536, 65537}) {
      inputs.push_back({test_name(fmt::format("{}_{}_{}", line.name, line.argument, index)),
                        [=](Scene& scene) -> std::function<void()> {
                          return [call = line.call, tensor = scene.tensor(shape, 0), index] {
                            call(tensor, index);
                          };
                        },
                        {line.name, line.argument, std::to_string(index), "0 to #last"}});
    }
  }
  return inputs;
}
TUTTI_BAD_INPUT_SUITE(LargeDeviceIndices, large_indices);

}  // namespace
}  // namespace tutti::test
