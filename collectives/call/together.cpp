// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/together.hpp"

#include "base/rounding.hpp"
#include "storage/storage.hpp"

#include <cstdint>
#include <utility>

namespace tutti::collectives {
namespace {

constexpr std::size_t alignment = 256;  // the widest accesses of kernels, with room to spare

std::size_t aligned(std::size_t bytes) {
  return round_up(bytes, alignment);
}

}  // namespace

Tensor allocate_for(Runtime& runtime, LayoutPtr layout, const ResultPlace& place) {
  auto storage = DeviceStorage::allocate(runtime, place.device.index(), layout->nbytes(), place.stream);
  void* const data = storage->data();
  return {std::move(storage), TensorView(data, std::move(layout), place.device)};
}

std::size_t bytes_together(std::span<const Layout* const> layouts) {
  std::size_t bytes = 0;
  for (const Layout* layout : layouts) bytes += aligned(layout->nbytes());
  return bytes;
}

std::vector<std::vector<Tensor>> allocate_together(Runtime& runtime, std::span<const Layout* const> layouts,
                                                   std::span<const ResultPlace> places) {
  const std::size_t bytes = bytes_together(layouts);
  std::vector<detail::IntrusivePtr<Storage>> storages;
  std::vector<std::vector<Tensor>> results(places.size());
  storages.reserve(places.size());
  for (std::size_t p = 0; p < places.size(); ++p) {
    storages.push_back(DeviceStorage::allocate(runtime, places[p].device.index(), bytes, places[p].stream));
    results[p].reserve(layouts.size());
  }
  // Nothing throws from here on. All references at once: one atomic addition instead of one per tensor.
  for (const auto& storage : storages) storage->add_references(static_cast<std::uint32_t>(layouts.size()));
  std::size_t offset = 0;
  for (const Layout* layout : layouts) {
    layout->add_references(static_cast<std::uint32_t>(places.size()));
    for (std::size_t p = 0; p < places.size(); ++p) {
      Storage* const storage = storages[p].get();
      results[p].emplace_back(detail::IntrusivePtr<Storage>::adopt(storage),
                              TensorView(static_cast<std::byte*>(storage->data()) + offset,
                                         LayoutPtr::adopt(layout), places[p].device));
    }
    offset += aligned(layout->nbytes());
  }
  return results;
}

}  // namespace tutti::collectives
