// SPDX-License-Identifier: Apache-2.0
// One test, in order: an allocator can be plugged in once in a process, before anything else.

#include "tutti/pluggable_allocator.hpp"

#include "backend/host/virtual_machine_control.hpp"
#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/timing.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/memory.hpp"
#include "tutti/sharing.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/types.h>

namespace tutti {
namespace {

using test::refuses;

const std::string plugin_path = TUTTI_TEST_PLUGIN;

void* plugin_device_malloc(ssize_t bytes, int device) {
  return device_malloc(static_cast<std::size_t>(bytes), device);
}

void plugin_device_free(void* address, int device) {
  synchronize(device);  // a tensor's last work may be queued still
  device_free(address, device);
}

/// The plugin as the test sees it, which loads it as well.
class LoadedPlugin {
 public:
  LoadedPlugin() : library_(dlopen(plugin_path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    using Use = void (*)(void* (*)(ssize_t, int), void (*)(void*, int));
    function<Use>("plugin_use")(plugin_device_malloc, plugin_device_free);
  }
  [[nodiscard]] long bytes_in_use() const { return function<long (*)()>("plugin_bytes_in_use")(); }

 private:
  template <class Function>
  [[nodiscard]] Function function(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void* library_;
};

TEST(PluggableAllocator, NamesWhatItCannotLoad) {
  EXPECT_TRUE(
      refuses([] { CUDAPluggableAllocator("/nowhere/at-all.so", "a", "b"); }, ErrorCode::invalid_argument,
              {"CUDAPluggableAllocator: shared_object is \"/nowhere/at-all.so\"", "expected a shared"}));
  EXPECT_TRUE(refuses([] { CUDAPluggableAllocator(plugin_path, "absent_alloc", "plugin_free"); },
                      ErrorCode::invalid_argument,
                      {"alloc_name is \"absent_alloc\", expected a function of", plugin_path}));
  EXPECT_TRUE(refuses([] { CUDAPluggableAllocator(plugin_path, "plugin_alloc", "absent_free"); },
                      ErrorCode::invalid_argument, {"free_name is \"absent_free\""}));
  EXPECT_TRUE(refuses([] { CUDAPluggableAllocator(nullptr, [](void*, std::size_t, int, void*) {}); },
                      ErrorCode::invalid_argument, {"alloc is empty, expected a function"}));
}

/// On whichever allocator is current.
void use_tensors() {
  const int last = device_count() - 1;
  const Tensor source = full({1000}, 3.0, {.device = 0});
  const Tensor target = empty({1000}, {.device = last});
  const std::vector<Tensor> out = broadcast(source, {Device(0), Device(last)});
  target.copy_(out[1]);
  EXPECT_EQ(target.to_vector<float>(), std::vector<float>(1000, 3.0F));
  const Stream reader(0);
  source.record_stream(reader);
  if (last == 0) return;
  // What members of a communicator would read where it lies is copied first.
  Communicator communicator({.devices = {Device(0), Device(last)}});
  const std::vector<Tensor> large{full({300'000}, 1, {.device = 0}), full({300'000}, 2, {.device = last})};
  communicator.all_reduce_add(large, large);
  EXPECT_EQ(large[1].to_vector<float>(), std::vector<float>(300'000, 3.0F));
}

TEST(PluggableAllocator, ProvidesTensorsFromASharedObject) {
  const LoadedPlugin plugin;
  change_current_allocator(CUDAPluggableAllocator(plugin_path, "plugin_alloc", "plugin_free"));
  EXPECT_EQ(get_allocator_backend(), "pluggable");
  const std::size_t allocated = memory_allocated(0);
  {
    const Tensor tensor = empty({1000}, {.device = 0});
    EXPECT_EQ(plugin.bytes_in_use(), 4000);
    EXPECT_EQ(memory_allocated(0), allocated) << "the caching allocator has nothing to do with it";
  }
  EXPECT_EQ(plugin.bytes_in_use(), 0);
  use_tensors();
  EXPECT_EQ(plugin.bytes_in_use(), 0);
  void* const raw = caching_allocator_alloc(100, 0);
  EXPECT_EQ(plugin.bytes_in_use(), 100);
  caching_allocator_delete(raw);
  EXPECT_EQ(plugin.bytes_in_use(), 0);
  EXPECT_TRUE(refuses([&] { caching_allocator_delete(raw); }, ErrorCode::invalid_argument,
                      {"caching_allocator_delete"}));
  EXPECT_TRUE(refuses(
      [] { change_current_allocator(CUDAPluggableAllocator(plugin_path, "plugin_alloc", "plugin_free")); },
      ErrorCode::invalid_argument,
      {"change_current_allocator: another allocator has been plugged in already", "before the first"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(empty({std::int64_t{1} << 50}, {.device = 0})); },
                      ErrorCode::out_of_memory, {"out of memory on device 0", "the pluggable allocator"}));
}

TEST(PluggableAllocator, ProvidesTensorsFromFunctions) {
  if (backend_kind() != BackendKind::host)
    GTEST_SKIP() << "another allocator is plugged in, and only virtual devices can be started anew";
  virtual_devices::start({});
  EXPECT_EQ(get_allocator_backend(), "native");
  struct Given {
    std::size_t bytes;
    int device;
    void* stream;
  };
  std::mutex mutex;
  std::map<void*, Given> given;
  change_current_allocator(CUDAPluggableAllocator(
      [&](std::size_t bytes, int device, void* stream) {
        EXPECT_EQ(current_device(), device);
        void* const address = device_malloc(bytes, device);
        const std::lock_guard lock(mutex);
        given[address] = {bytes, device, stream};
        return address;
      },
      [&](void* address, std::size_t bytes, int device, void* stream) {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(given.at(address).bytes, bytes);
        EXPECT_EQ(given.at(address).device, device);
        EXPECT_EQ(given.at(address).stream, stream);
        EXPECT_EQ(current_device(), device);
        given.erase(address);
        synchronize(device);
        device_free(address, device);
      }));
  const Stream stream(0);
  {
    const StreamGuard guard(stream);
    const Tensor tensor = empty({10}, {.device = 0});
    EXPECT_EQ(given.at(tensor.data()).stream, stream.native_handle());
    EXPECT_TRUE(refuses([] { virtual_devices::start({}); }, ErrorCode::invalid_argument,
                        {"40 bytes of the pluggable allocator are still allocated"}));
  }
  use_tensors();
  EXPECT_EQ(current_device(), 0);
  EXPECT_TRUE(given.empty());
  void* const nothing = caching_allocator_alloc(0, 0);
  EXPECT_TRUE(given.contains(nothing));
  caching_allocator_delete(nothing);
  EXPECT_TRUE(given.empty());

  // What graphs use stays as long as they do.
  const auto is_given_all = [&](std::size_t count) {
    const std::lock_guard lock(mutex);
    return given.size() == count;
  };
  const Tensor out = zeros({10}, {.device = 0});
  {
    Tensor dropped = full({10}, 4, {.device = 0});
    void* raw = caching_allocator_alloc(100, 0);
    const Graph graph = Graph::capture(stream, [&] {
      out.copy_(dropped, Blocking::no);
      dropped = Tensor();
      caching_allocator_delete(raw);
    });
    EXPECT_TRUE(is_given_all(3));
    stream.wait_stream(current_stream(0));  // which fills what the graph copies
    graph.launch(stream);
    stream.synchronize();
  }
  ipc_collect();
  EXPECT_TRUE(is_given_all(1));
  EXPECT_EQ(out.to_vector<float>(), std::vector<float>(10, 4));

  // A capture that others began, on the tensor's own stream; and one of another user's stream.
  backend::Backend& backend = Runtime::get().backend();
  const Stream other(0);
  Tensor own;
  {
    const StreamGuard guard(stream);
    own = full({10}, 4, {.device = 0});
  }
  Tensor lent = full({10}, 4, {.device = 0});
  lent.record_stream(other);
  synchronize(0);
  backend.begin_capture(StreamAccess::ref(stream), CaptureErrorMode::thread);
  backend.begin_capture(StreamAccess::ref(other), CaptureErrorMode::thread);
  own = Tensor();
  lent = Tensor();
  EXPECT_TRUE(is_given_all(3));
  backend.destroy_graph(backend.end_capture(StreamAccess::ref(other), nullptr));
  backend.destroy_graph(backend.end_capture(StreamAccess::ref(stream), nullptr));
  EXPECT_TRUE(test::becomes_true([&] {
    ipc_collect();
    return is_given_all(1);
  }));
}

TEST(PluggableAllocator, MayGiveMemoryThatPeersHaveNoAccessTo) {
  if (backend_kind() != BackendKind::host)
    GTEST_SKIP() << "another allocator is plugged in, and only virtual devices can be started anew";
  virtual_devices::start({});
  change_current_allocator(CUDAPluggableAllocator(
      [](std::size_t bytes, int device, void* /*stream*/) {
        void* const address = device_malloc(bytes, device);
        Runtime::get().virtual_machine()->close_to_peers(address);
        return address;
      },
      [](void* address, std::size_t /*bytes*/, int device, void* /*stream*/) {
        plugin_device_free(address, device);
      }));
  use_tensors();
  const int last = device_count() - 1;
  const Tensor source = full({1000}, 3, {.device = 0});
  const Tensor target = empty({1000}, {.device = last});
  target.copy_(source);
  EXPECT_EQ(target.to_vector<float>(), std::vector<float>(1000, 3));
  const Tensor columns = full({10, 100}, 4, {.device = last}).transpose(0, 1);
  source.view({100, 10}).copy_(columns);
  EXPECT_EQ(source.to_vector<float>(), std::vector<float>(1000, 4));
}

TEST(PluggableAllocator, ComesBeforeTheFirstTensorOnly) {
  if (backend_kind() != BackendKind::host)
    GTEST_SKIP() << "another allocator is plugged in, and only virtual devices can be started anew";
  virtual_devices::start({});
  static_cast<void>(empty({1}, {.device = 0}));
  EXPECT_TRUE(refuses(
      [] { change_current_allocator(CUDAPluggableAllocator(plugin_path, "plugin_alloc", "plugin_free")); },
      ErrorCode::invalid_argument,
      {"change_current_allocator: the caching allocator is in use already", "before the first"}));
}

TEST(DeviceMalloc, ComesFromTheDeviceItself) {
  const std::size_t allocated = memory_allocated(0);
  void* const address = device_malloc(1000, 0);
  ASSERT_NE(address, nullptr);
  EXPECT_EQ(memory_allocated(0), allocated);
  device_free(address, 0);
  device_free(nullptr, 0);
  EXPECT_TRUE(refuses([] { static_cast<void>(device_malloc(1, device_count())); },
                      ErrorCode::invalid_argument, {"device_malloc: device is"}));
}

TEST(DeviceMalloc, GivesMemoryByPieces) {
  constexpr std::size_t piece = std::size_t{4} << 20;
  constexpr std::int64_t count = 3 << 20;  // of int32: three pieces
  const std::size_t free = mem_get_info(0).free;
  for (int round = 0; round < 2; ++round) {
    void* const address = device_malloc_in_pieces(2 * piece + 1, piece, 0);
    ASSERT_NE(address, nullptr);
    {
      const Tensor tensor = from_blob(address, {count}, {.dtype = DType::int32, .device = 0});
      tensor.fill_(7);
      EXPECT_EQ(tensor.narrow(0, count - 1, 1).item<std::int32_t>(), 7);
      synchronize(0);
    }
    device_free(address, 0);
  }
  EXPECT_EQ(device_malloc_in_pieces(std::size_t{1} << 60, piece, 0), nullptr);
  if (test::on_virtual_devices()) {
    EXPECT_EQ(device_malloc_in_pieces(free, 3 * piece, 0), nullptr) << "the last has no room";
    EXPECT_EQ(mem_get_info(0).free, free);
  }
  EXPECT_TRUE(refuses([] { static_cast<void>(device_malloc_in_pieces(1, 1, device_count())); },
                      ErrorCode::invalid_argument, {"device_malloc_in_pieces: device is"}));
}

}  // namespace
}  // namespace tutti
