// SPDX-License-Identifier: Apache-2.0
// The updates on virtual devices: functions that run on a stream's own thread.

#include "kernels.hpp"
#include "tutti/device.hpp"
#include "tutti/virtual_devices.hpp"

#include <vector>

namespace optimizers {

void queue(const Step& step, const tutti::ParameterShard& shard) {
  tutti::backend_kind() == tutti::BackendKind::cuda ? queue_on_gpu(step, shard)
                                                    : queue_on_virtual_device(step, shard);
}

void queue_on_virtual_device(const Step& step, const tutti::ParameterShard& shard) {
  std::vector<tutti::virtual_devices::Access> accesses;
  const auto add = [&](const tutti::Tensor& tensor) { accesses.push_back({tensor.data(), tensor.nbytes()}); };
  add(shard.parameters);
  add(shard.gradients);
  for (const tutti::Tensor& state : shard.state) add(state);
  tutti::virtual_devices::launch(tutti::current_stream(shard.parameters.device()), "optimizer step", accesses,
                                 [step, count = shard.parameters.numel()](auto memory) {
                                   Elements elements;
                                   elements.parameters = static_cast<float*>(memory[0]);
                                   elements.gradients = static_cast<const float*>(memory[1]);
                                   if (memory.size() > 2)
                                     elements.first_state = static_cast<float*>(memory[2]);
                                   if (memory.size() > 3)
                                     elements.second_state = static_cast<float*>(memory[3]);
                                   std::visit(
                                       [&](const auto& each) {
                                         for (std::int64_t i = 0; i < count; ++i) each(elements, i);
                                       },
                                       step);
                                 });
}

}  // namespace optimizers
