#include "collectives/together.hpp"

#include "storage.hpp"

#include <cstdint>

namespace tutti::collectives {
namespace {

constexpr std::size_t alignment = 256;  // the widest accesses of kernels, with room to spare

std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

std::size_t bytes_together(std::span<const LayoutPtr> layouts) {
  std::size_t bytes = 0;
  for (const LayoutPtr& layout : layouts) bytes += aligned(layout->nbytes());
  return bytes;
}

std::vector<Tensor> allocate_together(Runtime& runtime, std::span<const LayoutPtr> layouts, Device device,
                                      backend::StreamRef stream) {
  const auto storage = DeviceStorage::allocate(runtime, device.index(), bytes_together(layouts), stream);
  // All references at once: one atomic addition instead of one per tensor.
  std::vector<Tensor> results;
  results.reserve(layouts.size());
  storage->add_references(static_cast<std::uint32_t>(layouts.size()));
  auto* address = static_cast<std::byte*>(storage->data());
  for (const LayoutPtr& layout : layouts) {
    results.emplace_back(detail::IntrusivePtr<Storage>::adopt(storage.get()),
                         TensorView(address, layout, device));
    address += aligned(layout->nbytes());
  }
  return results;
}

}  // namespace tutti::collectives
