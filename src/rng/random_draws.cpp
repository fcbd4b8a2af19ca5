// SPDX-License-Identifier: Apache-2.0
#include "rng/random_draws.hpp"

#include "device/runtime.hpp"
#include "storage/storage.hpp"
#include "stream/streams.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace tutti {

RandomDraws::Place RandomDraws::add(backend::StreamRef stream, std::uint64_t words) {
  const std::lock_guard lock(mutex_);
  auto found = std::ranges::find_if(
      devices_, [stream](const OfDevice& draws) { return draws.state->device().index() == stream.device; });
  if (found == devices_.end()) {
    OfDevice fresh;
    if (!pool_) pool_.emplace(runtime_, launches_);
    fresh.state =
        DeviceStorage::allocate_from(pool_->id(), runtime_, stream.device, sizeof(PhiloxState), stream);
    found = devices_.insert(devices_.end(), std::move(fresh));
  }
  const Place place{static_cast<const std::uint64_t*>(found->state->data()), found->words};
  found->words += words;
  return place;
}

bool RandomDraws::empty() {
  const std::lock_guard lock(mutex_);
  return devices_.empty();
}

void RandomDraws::begin_launch(backend::StreamRef stream) {
  const std::lock_guard lock(mutex_);
  for (OfDevice& draws : devices_) {
    const int device = draws.state->device().index();
    write(draws, take_random_words(runtime_, device, draws.words), stream);
  }
}

void RandomDraws::write(OfDevice& draws, const PhiloxState& state, backend::StreamRef stream) {
  backend::StreamRef writer = stream;
  const int device = draws.state->device().index();
  if (device != stream.device) {
    if (draws.writer.handle == nullptr) draws.writer = runtime_.backend().create_stream(device, 0);
    writer = draws.writer;
  }
  runtime_.part<Streams>().order(stream, writer);
  // The values travel with the kernel: nothing that a later launch writes is read by this one.
  using Bytes = std::array<std::byte, sizeof(PhiloxState)>;
  runtime_.backend().fill(writer, {.target = static_cast<std::byte*>(draws.state->data()),
                                   .count = 1,
                                   .element_bytes = sizeof(PhiloxState),
                                   .value = std::bit_cast<Bytes>(state)});
  runtime_.part<Streams>().order(writer, stream);
}

void RandomDraws::clear() noexcept {
  for (const OfDevice& draws : devices_) {
    if (draws.writer.handle != nullptr && !fork_mark_.is_in_child())
      runtime_.backend().destroy_stream(draws.writer);
  }
  devices_.clear();
}

}  // namespace tutti
