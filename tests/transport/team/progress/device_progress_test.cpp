// SPDX-License-Identifier: Apache-2.0
#include "transport/team/progress/device_progress.hpp"

#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "support/machines/machines.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <thread>

#include <gtest/gtest.h>

/// Devices that are asked how far they have come, here virtual ones.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::InjectedFault;
using test::StreamGate;

class AskedDevices : public testing::Test {
 protected:
  void SetUp() override {
    test::boot("island", 1, std::size_t{1} << 24U);
    own_work_.emplace(0);
    asking_.emplace(0);
    known_ = new (backend().allocate_pinned(sizeof(backend::SharedFlag))) backend::SharedFlag;
    on_device_ = static_cast<backend::SharedFlag*>(backend().allocate_device(0, sizeof(backend::SharedFlag)));
    come_to(0);
  }
  void TearDown() override {
    progress_.reset();
    backend().free_device(0, on_device_);
    backend().free_pinned(known_);
  }

  static backend::Backend& backend() { return Runtime::get().backend(); }
  /// What is known once the devices have been asked since now; nobody asks any more then.
  [[nodiscard]] std::uint32_t known() {
    const std::int64_t now = RankStatus::now();
    EXPECT_TRUE(becomes_true([&] { return progress_->known_until() > now; }));
    is_behind_ = false;
    progress_->look();  // a question that was being asked has been asked
    EXPECT_TRUE(becomes_true([&] { return progress_->silence() == 0ns; }));
    return known_->value.load();
  }
  /// What the device says from now on.
  void come_to(std::uint32_t value) {
    backend::Fill fill{.target = reinterpret_cast<std::byte*>(on_device_), .count = 1, .element_bytes = 4};
    std::memcpy(fill.value.data(), &value, sizeof value);
    backend().fill(StreamAccess::ref(*own_work_), fill);
    own_work_->synchronize();
  }
  void start() {
    const DeviceProgress::Device device{
        .stream = StreamAccess::ref(*asking_), .on_device = &on_device_->value, .known = known_};
    progress_.emplace(
        Runtime::get(), std::span(&device, 1), [this] { return is_behind_.load(); },
        [this](const backend::Escaped&) { ++failures_; });
  }

  std::optional<Stream> own_work_;
  std::optional<Stream> asking_;
  backend::SharedFlag* known_ = nullptr;
  backend::SharedFlag* on_device_ = nullptr;
  std::atomic<bool> is_behind_ = true;  ///< there is something to hear
  std::atomic<int> failures_ = 0;
  std::optional<DeviceProgress> progress_;
};

TEST_F(AskedDevices, AreHeardOfWithoutAnyoneElseAsking) {
  start();
  for (const std::uint32_t value : {3U, 7U}) {
    come_to(value);
    is_behind_ = true;
    EXPECT_EQ(known(), value);
  }
  EXPECT_EQ(failures_, 0);
}

TEST_F(AskedDevices, AreNotAskedWhenThereIsNothingToHear) {
  is_behind_ = false;
  start();
  const std::uint64_t before = virtual_devices::operations_enqueued();
  progress_->look();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(virtual_devices::operations_enqueued(), before);
}

TEST_F(AskedDevices, ThatOweAnAnswerAreSilent) {
  come_to(1);
  StreamGate gate(*asking_);
  const std::int64_t before = RankStatus::now();
  start();
  EXPECT_TRUE(becomes_true([&] { return progress_->silence() > 30ms; }));
  progress_->look();  // returns all the same
  EXPECT_LT(progress_->known_until(), before);
  gate.open();
  EXPECT_EQ(known(), 1U);
}

TEST_F(AskedDevices, ThatFailAreToldOf) {
  come_to(1);
  const InjectedFault fault({.operation = virtual_devices::Operation::copy});
  start();
  EXPECT_TRUE(becomes_true([&] { return failures_ == 1; }));
  EXPECT_EQ(known(), 1U) << "the next question is asked all the same";
}

}  // namespace
}  // namespace tutti::transport::team
