// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/ranks.hpp"
#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

/// Calls on streams that the program has made itself.
namespace tutti::test {
namespace {

/// A stream that the library does not own.
class MadeElsewhere {
 public:
  explicit MadeElsewhere(int device) : stream_(Runtime::get().backend().create_stream(device, 0)) {}
  MadeElsewhere(const MadeElsewhere&) = delete;
  MadeElsewhere& operator=(const MadeElsewhere&) = delete;
  ~MadeElsewhere() { Runtime::get().backend().destroy_stream(stream_); }
  [[nodiscard]] Stream stream() const { return ExternalStream(stream_.handle, stream_.device); }

 private:
  backend::StreamRef stream_;
};

TEST(ExternalStreams, MakeCallsOneAfterTheOtherOnWhateverStreams) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank() % device_count();
    Communicator communicator(exchange, {.devices = {device}});
    for_each_interleaving(4, [&](std::uint64_t) {
      const MadeElsewhere one(device);
      const MadeElsewhere other(device);
      const std::vector<Stream> streams{one.stream(), other.stream(), Stream(device)};
      std::vector<Tensor> sums;
      // The same stream several times, the next one, one of the library's, and back.
      for (const char which : std::string_view("0001102220012010")) {
        const StreamGuard guard(streams[static_cast<std::size_t>(which - '0')]);
        if (which == '0') keep_busy(current_stream(device));
        const auto value = static_cast<double>(sums.size() + 1);
        sums.push_back(full({20'000}, value, {.device = device}));
        communicator.all_reduce_add({sums.back()}, {sums.back()});
      }
      for (const Stream& stream : streams) stream.synchronize();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto expected = static_cast<float>(2 * (i + 1));
        ASSERT_EQ(sums[i].to_vector<float>(), std::vector<float>(20'000, expected)) << "call " << i;
      }
    });
    communicator.check();
  });
}

TEST(ExternalStreams, MayBePermanent) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank() % device_count();
    Communicator communicator(exchange, {.devices = {device}});
    for_each_interleaving(4, [&](std::uint64_t) {
      const backend::StreamRef made = Runtime::get().backend().create_stream(device, 0);  // never destroyed
      const ExternalStream stream(made.handle, made.device);
      std::vector<Tensor> sums;
      const auto call_on = [&](const Stream& current) {
        const StreamGuard guard(current);
        keep_busy(current);
        sums.push_back(full({20'000}, static_cast<double>(sums.size() + 1), {.device = device}));
        communicator.all_reduce_add({sums.back()}, {sums.back()});
      };
      {
        const MadeElsewhere other(device);
        call_on(stream);
        call_on(other.stream());
        call_on(stream);
        const PermanentStream permanent(made.handle, made.device);  // for the calls on `stream`, too
        EXPECT_EQ(permanent, stream);
        call_on(stream);
        call_on(permanent);
        call_on(other.stream());
        call_on(permanent);
        call_on(Stream(device));
        call_on(permanent);
        call_on(other.stream());
      }  // `other` is gone
      call_on(stream);
      call_on(Stream(device));
      call_on(stream);
      stream.synchronize();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto expected = static_cast<float>(2 * (i + 1));
        ASSERT_EQ(sums[i].to_vector<float>(), std::vector<float>(20'000, expected)) << "call " << i;
      }
    });
    communicator.check();
  });
}

TEST(ExternalStreams, HaveMessagesAmongCalls) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank() % device_count();
    const int other_rank = 1 - exchange.rank();
    Communicator communicator(exchange, {.devices = {device}});
    const MadeElsewhere one(device);
    const MadeElsewhere other(device);
    const std::vector<Stream> streams{one.stream(), other.stream(), Stream(device)};
    std::vector<Tensor> received;
    std::vector<Tensor> sums;
    for (const char which : std::string_view("0000112200120")) {
      const StreamGuard guard(streams[static_cast<std::size_t>(which - '0')]);
      const auto value = static_cast<double>(sums.size() + 1);
      received.push_back(zeros({100}, {.device = device}));
      communicator.sendrecv(full({100}, value, {.device = device}), other_rank, received.back(), other_rank);
      sums.push_back(full({100}, value, {.device = device}));
      if (sums.size() % 3 == 0) communicator.all_reduce_add({sums.back()}, {sums.back()});
    }
    for (const Stream& stream : streams) stream.synchronize();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto value = static_cast<float>(i + 1);
      ASSERT_EQ(received[i].to_vector<float>(), std::vector<float>(100, value)) << "message " << i;
      ASSERT_EQ(sums[i].to_vector<float>().front(), (i + 1) % 3 == 0 ? 2 * value : value) << "call " << i;
    }
    communicator.check();
  });
}

}  // namespace
}  // namespace tutti::test
