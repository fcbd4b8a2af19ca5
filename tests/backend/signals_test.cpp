// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "stream/stream_access.hpp"
#include "support/environment.hpp"
#include "support/stream_gate.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Streams that wait for flags which other streams set.
namespace tutti {
namespace {

using backend::SharedFlag;
using test::StreamFlag;
using test::StreamGate;

/// Flags in pinned memory, at 0.
class Flags {
 public:
  explicit Flags(std::size_t count)
      : flags_(static_cast<SharedFlag*>(backend().allocate_pinned(count * sizeof(SharedFlag))), count) {
    std::uninitialized_value_construct_n(flags_.data(), count);
  }
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;
  ~Flags() {
    test::synchronize_all();
    backend().free_pinned(flags_.data());
  }

  void signal(backend::StreamRef stream, std::size_t flag, std::uint32_t value) const {
    backend().signal(stream, flags_[flag], value);
  }
  void signal(const Stream& stream, std::size_t flag, std::uint32_t value) const {
    signal(StreamAccess::ref(stream), flag, value);
  }
  void wait(backend::StreamRef stream, std::size_t first, std::size_t count, std::uint32_t value) const {
    backend().wait_signals(stream, flags_.subspan(first, count), value);
  }
  void wait(const Stream& stream, std::size_t first, std::size_t count, std::uint32_t value) const {
    wait(StreamAccess::ref(stream), first, count, value);
  }
  [[nodiscard]] std::uint32_t value(std::size_t flag) const { return flags_[flag].value; }

 private:
  [[nodiscard]] static backend::Backend& backend() { return Runtime::get().backend(); }
  std::span<SharedFlag> flags_;
};

/// The last device: another one than the first, if there is another.
int other_device() {
  return device_count() - 1;
}

class Signals : public testing::Test {
 protected:
  void SetUp() override {
    if (Runtime::get().backend().signal_support() == backend::SignalSupport::none)
      GTEST_SKIP() << "the driver has no signals";
  }
};

TEST_F(Signals, AreThereOnBothBackends) {
  const auto support = Runtime::get().backend().signal_support();
  EXPECT_EQ(support,
            test::on_virtual_devices() ? backend::SignalSupport::available : backend::SignalSupport::cheaper);
}

TEST_F(Signals, ComeAfterAllEarlierWorkOfTheirStream) {
  const Flags flags(1);
  constexpr std::int64_t count = 1 << 20U;
  Tensor data = zeros({count}, {.dtype = DType::int32, .device = 0});
  synchronize(0);
  const Stream writer(0);
  const Stream reader(other_device());
  StreamGate gate(writer);
  {
    const StreamGuard current(writer);
    data.fill_(7);
  }
  flags.signal(writer, 0, 1);
  flags.wait(reader, 0, 1, 1);
  const StreamFlag passed(reader);
  EXPECT_TRUE(passed.stays_unset());
  EXPECT_EQ(flags.value(0), 0U);
  gate.open();
  EXPECT_TRUE(passed.becomes_set());
  EXPECT_EQ(flags.value(0), 1U);
  EXPECT_EQ(std::ranges::count(data.to_vector<std::int32_t>(), 7), count);
}

TEST_F(Signals, AreWaitedForAllAtOnce) {
  const Flags flags(backend::most_signals);
  const Stream reader(0);
  const Stream writer(other_device());
  for (std::size_t flag = 1; flag < backend::most_signals; ++flag) flags.signal(writer, flag, 3);
  StreamGate gate(writer);
  flags.signal(writer, 0, 3);
  flags.wait(reader, 0, backend::most_signals, 3);
  const StreamFlag passed(reader);
  EXPECT_TRUE(passed.stays_unset());
  gate.open();
  EXPECT_TRUE(passed.becomes_set());
}

TEST_F(Signals, HoldForValuesThatFollowEvenPast32Bits) {
  const Flags flags(1);
  const Stream reader(0);
  const Stream writer(other_device());
  flags.signal(writer, 0, 0xffffffffU);
  writer.synchronize();
  flags.wait(reader, 0, 1, 0xfffffff0U);
  reader.synchronize();
  flags.signal(writer, 0, 2);
  writer.synchronize();
  flags.wait(reader, 0, 1, 0xffffffffU);
  const StreamFlag passed(reader);
  EXPECT_TRUE(passed.becomes_set());
}

/// A thread that has called nothing else has no device yet.
TEST_F(Signals, MayBeAThreadsFirstCalls) {
  const Flags flags(1);
  std::uint32_t value = 0;
  for (const int device : {0, other_device()}) {
    for (const Stream& stream : {default_stream(device), Stream(device)}) {
      ++value;
      std::thread([&] { flags.signal(stream, 0, value); }).join();
      std::thread([&] { flags.wait(stream, 0, 1, value); }).join();
      const StreamFlag passed(stream);
      EXPECT_TRUE(passed.becomes_set());
      EXPECT_EQ(flags.value(0), value);
    }
  }
}

/// More streams than a GPU has queues for, on both sides, with the work that all wait for queued first.
TEST_F(Signals, LetStreamsPassThatShareQueues) {
  constexpr std::size_t pairs = 150;
  const Flags flags(pairs + 1);
  const Stream first(0);
  backend::Backend& backend = Runtime::get().backend();
  std::vector<backend::StreamRef> streams;
  for (std::size_t i = 0; i < 2 * pairs; ++i)
    streams.push_back(backend.create_stream(i % 2 == 0 ? 0 : other_device(), 0));
  StreamGate gate(first);
  flags.signal(first, pairs, 1);
  for (std::size_t i = 0; i < pairs; ++i) {
    flags.wait(streams[2 * i], pairs, 1, 1);
    flags.signal(streams[2 * i], i, 1);
    flags.wait(streams[2 * i + 1], i, 1, 1);
  }
  const auto is_idle = [&](backend::StreamRef stream) { return backend.query_stream(stream); };
  EXPECT_TRUE(std::ranges::none_of(streams, is_idle));
  gate.open();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!std::ranges::all_of(streams, is_idle) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(std::ranges::all_of(streams, is_idle));
  for (const backend::StreamRef stream : streams) backend.destroy_stream(stream);
}

}  // namespace
}  // namespace tutti
