// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"

#include <chrono>
#include <cstring>
#include <numeric>

#include <gmock/gmock.h>

namespace tutti::backend {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using virtual_devices::FaultKind;
using virtual_devices::Operation;

class HostFaults : public HostMachine {
 protected:
  void fill(int device, std::byte* target, std::size_t count) {
    machine().fill(machine().default_stream(device), {.target = target, .count = count});
  }

  static constexpr std::uint64_t always = UINT64_MAX;
};

TEST_F(HostFaults, ExhaustMemory) {
  control().inject({.operation = Operation::allocate_device, .device = 1, .skip = 1, .count = 2});
  EXPECT_NE(machine().allocate_device(0, 100), nullptr);
  EXPECT_NE(machine().allocate_device(1, 100), nullptr);
  EXPECT_EQ(machine().allocate_device(1, 100), nullptr);
  EXPECT_EQ(machine().allocate_device(1, 100), nullptr);
  EXPECT_NE(machine().allocate_device(1, 100), nullptr);
  control().inject({.operation = Operation::allocate_pinned});
  EXPECT_EQ(machine().allocate_pinned(100), nullptr);
  void* pinned = machine().allocate_pinned(100);
  EXPECT_NE(pinned, nullptr);
  machine().free_pinned(pinned);
}

TEST_F(HostFaults, RefuseOperationsWhenTheyAreEnqueued) {
  auto* address = allocate<std::byte>(0, 16);
  control().inject({.operation = Operation::kernel, .device = 0});
  const auto message = error_message(ErrorCode::device_failure, [&] { fill(0, address, 16); });
  EXPECT_THAT(message, AllOf(HasSubstr("fill"), HasSubstr("device 0"), HasSubstr("injected")));
  EXPECT_EQ(control().operations_enqueued(), 0U);
  EXPECT_NO_THROW(machine().synchronize_device(0));
  control().inject({.operation = Operation::copy, .device = 0});
  error_message(ErrorCode::device_failure,
                [&] { copy(machine().default_stream(0), address, address + 8, 8); });
  control().inject({.operation = Operation::create_stream});
  error_message(ErrorCode::device_failure, [&] { (void)machine().create_stream(0, 0); });
  control().inject({.operation = Operation::create_event});
  error_message(ErrorCode::device_failure,
                [&] { (void)machine().create_event(0, EventTiming::off, EventWait::spin); });
}

TEST_F(HostFaults, RefusePeerAccess) {
  control().inject({.operation = Operation::enable_peer, .device = 0, .peer = 2});
  EXPECT_NO_THROW(machine().enable_peer_access(0, 1));
  EXPECT_NO_THROW(machine().enable_peer_access(2, 0));
  error_message(ErrorCode::peer_unavailable, [&] { machine().enable_peer_access(0, 2); });
  EXPECT_NO_THROW(machine().enable_peer_access(0, 2));
}

TEST_F(HostFaults, FailOperationsWhenTheyRun) {
  auto* address = allocate<std::byte>(0, 16);
  control().inject({.operation = Operation::kernel, .kind = FaultKind::fail_asynchronously, .skip = 1});
  fill(0, address, 16);
  fill(0, address, 16);
  fill(0, address, 16);
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
              AllOf(HasSubstr("fill on stream 0 of device 0"), HasSubstr("injected")));
  EXPECT_NO_THROW(machine().synchronize_device(0));
}

TEST_F(HostFaults, DelayOperations) {
  auto* address = allocate<std::byte>(0, 16);
  control().inject({.operation = Operation::kernel, .kind = FaultKind::delay, .delay_microseconds = 20'000});
  const auto start = std::chrono::steady_clock::now();
  fill(0, address, 16);
  machine().synchronize_device(0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

TEST_F(HostFaults, CorruptWhatIsWrittenThroughALink) {
  machine().enable_peer_access(0, 1);
  machine().enable_peer_access(0, 2);
  std::vector<std::uint8_t> pattern(1000);
  std::iota(pattern.begin(), pattern.end(), std::uint8_t{0});
  auto* source = upload(0, pattern);
  std::uint8_t* targets[] = {upload(1, std::vector<std::uint8_t>(1000)),
                             upload(2, std::vector<std::uint8_t>(1000)),
                             upload(0, std::vector<std::uint8_t>(1000))};
  control().inject(
      {.operation = Operation::kernel, .kind = FaultKind::corrupt, .device = 0, .peer = 1, .count = always});

  std::byte* pointers[] = {bytes_of(source), bytes_of(targets[0]), bytes_of(targets[1]),
                           bytes_of(targets[2])};
  const FanOutSegment push{.row_bytes = 1000, .source = 0, .first_target = 1, .target_count = 3};
  machine().fan_out(machine().default_stream(0), {.segments = {&push, 1}, .pointers = pointers});
  machine().synchronize_device(0);
  EXPECT_NE(download(1, targets[0], 1000), pattern);
  EXPECT_EQ(download(2, targets[1], 1000), pattern);
  EXPECT_EQ(download(0, targets[2], 1000), pattern);

  // Reading through the link damages what is written from it.
  const auto* remote = upload(1, pattern);
  std::byte* pull_pointers[] = {bytes_of(const_cast<std::uint8_t*>(remote)), bytes_of(targets[2])};
  const FanOutSegment pull{.row_bytes = 1000, .source = 0, .first_target = 1, .target_count = 1};
  machine().fan_out(machine().default_stream(0), {.segments = {&pull, 1}, .pointers = pull_pointers});
  machine().synchronize_device(0);
  EXPECT_NE(download(0, targets[2], 1000), pattern);

  control().clear_faults();
  machine().fan_out(machine().default_stream(0), {.segments = {&pull, 1}, .pointers = pull_pointers});
  machine().synchronize_device(0);
  EXPECT_EQ(download(0, targets[2], 1000), pattern);
}

TEST_F(HostFaults, CorruptCopiesOnlyWhereTheyUseTheLink) {
  const std::vector<int> pattern{1, 2, 3};
  auto* source = upload(0, pattern);
  auto* target = upload(1, std::vector<int>(3));
  control().inject({.operation = Operation::copy, .kind = FaultKind::corrupt, .count = always});
  copy(machine().default_stream(0), target, source, 12);
  machine().synchronize_device(0);
  EXPECT_EQ(download(1, target, 3), pattern) << "without peer access, the system stages through the host";
  machine().enable_peer_access(0, 1);
  copy(machine().default_stream(0), target, source, 12);
  machine().synchronize_device(0);
  EXPECT_NE(download(1, target, 3), pattern);
}

TEST_F(HostFaults, AreRefusedWhereTheyMeanNothing) {
  const auto refusal_of = [&](const virtual_devices::Fault& fault) {
    return error_message(ErrorCode::invalid_argument, [&] { control().inject(fault); });
  };
  for (const FaultKind kind : {FaultKind::fail_asynchronously, FaultKind::corrupt, FaultKind::delay}) {
    for (const Operation operation : {Operation::allocate_device, Operation::enable_peer})
      EXPECT_THAT(refusal_of({.operation = operation, .kind = kind}), HasSubstr("only copies and kernels"));
  }
  EXPECT_THAT(refusal_of({.operation = Operation::allocate_device, .device = 4}),
              AllOf(HasSubstr("device is device:4"), HasSubstr("there are 4 devices")));
  EXPECT_THAT(refusal_of({.operation = Operation::enable_peer, .peer = 5}), HasSubstr("peer is device:5"));
  EXPECT_NE(machine().allocate_device(0, 100), nullptr) << "what was refused has been injected";
  machine().enable_peer_access(0, 1);
}

TEST_F(HostFaults, CountOperations) {
  auto* address = allocate<std::byte>(0, 16);
  const StreamRef stream = machine().default_stream(0);
  const EventHandle event = machine().create_event(0, EventTiming::on, EventWait::block);
  fill(0, address, 16);
  copy(stream, address, address + 8, 8);
  machine().record_event(event, stream);
  machine().wait_event(machine().default_stream(1), event);
  machine().launch_host_function(
      stream, [](void*) {}, nullptr);
  launch(stream, "nothing", {}, [](auto) {});
  EXPECT_EQ(control().operations_enqueued(), 4U);
  machine().synchronize_device(0);
  machine().destroy_event(event);
}

}  // namespace
}  // namespace tutti::backend
