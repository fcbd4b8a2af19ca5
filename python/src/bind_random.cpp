// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "tutti/error.hpp"
#include "tutti/rng.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace tutti::python {
namespace {

nb::bytes bytes_of(const RngState& state) {
  return nb::bytes(state.data(), state.size());
}

RngState state_of(const nb::bytes& bytes) {
  RngState state{};
  if (bytes.size() != state.size()) {
    throw Error(ErrorCode::invalid_argument,
                "set_rng_state: new_state has " + std::to_string(bytes.size()) + " bytes, expected 16");
  }
  std::copy_n(static_cast<const std::byte*>(bytes.data()), state.size(), state.begin());
  return state;
}

}  // namespace

void bind_random(nb::module_& module) {
  module.def("manual_seed", &manual_seed, nb::arg("seed"), "Seeds the current device's generator.");
  module.def("manual_seed_all", &manual_seed_all, nb::arg("seed"), "Seeds the generators of all devices.");
  module.def("seed", &seed,
             "Seeds the current device's generator from the system's entropy; returns the seed.");
  module.def("seed_all", &seed_all,
             "Seeds all devices' generators from the system's entropy; returns the seed.");
  module.def("initial_seed", &initial_seed, "The current device's seed.");
  module.def(
      "get_rng_state", [](const DeviceArgument& device) { return bytes_of(get_rng_state(device.get())); },
      nb::arg("device") = nb::none(), "16 bytes: the seed, then the offset, little endian.");
  module.def(
      "set_rng_state",
      [](const nb::bytes& state, const DeviceArgument& device) {
        set_rng_state(state_of(state), device.get());
      },
      nb::arg("new_state"), nb::arg("device") = nb::none());
  module.def("get_rng_state_all", [] {
    nb::list states;
    for (const RngState& state : get_rng_state_all()) states.append(bytes_of(state));
    return states;
  });
  module.def(
      "set_rng_state_all",
      [](const nb::list& given) {
        std::vector<RngState> states;
        for (const nb::handle state : given) states.push_back(state_of(nb::cast<nb::bytes>(state)));
        set_rng_state_all(states);
      },
      nb::arg("new_states"));
}

}  // namespace tutti::python
