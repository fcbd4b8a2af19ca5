// SPDX-License-Identifier: Apache-2.0
#include "device/ended_work.hpp"

#include "device/runtime.hpp"
#include "support/errors.hpp"
#include "tutti/device.hpp"
#include "tutti/event.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

/// What devices do not tell of themselves is told by whatever waits for them.
namespace tutti {
namespace {

class Ends final : public EndedWork::Source {
 public:
  explicit Ends(int device) : device_(device) {
    const std::array devices{device};
    Runtime::get().part<EndedWork>().add(*this, devices);
  }
  ~Ends() { Runtime::get().part<EndedWork>().remove(*this); }

  std::optional<Error> take_end(int device) override {
    EXPECT_EQ(device, device_);
    if (!is_ended_) return std::nullopt;
    is_ended_ = false;
    return Error(ErrorCode::timeout, "it took too long");
  }
  void end() { is_ended_ = true; }

 private:
  int device_;
  bool is_ended_ = false;
};

TEST(EndedWork, IsToldByEveryKindOfWaitOnce) {
  const Tensor tensor = zeros({1000}, {.device = 0});
  const Stream stream(0);
  const Event event = stream.record_event();
  synchronize(0);
  Ends ends(0);
  const std::vector<std::function<void()>> waits{[] { synchronize(0); },
                                                 [&] { stream.synchronize(); },
                                                 [&] { static_cast<void>(stream.query()); },
                                                 [&] { event.synchronize(); },
                                                 [&] { static_cast<void>(event.query()); },
                                                 [&] { static_cast<void>(tensor.to_vector<float>()); },
                                                 [&] { static_cast<void>(tensor.to(Device::host())); }};
  for (const auto& wait : waits) {
    EXPECT_NO_THROW(wait());
    ends.end();
    EXPECT_TRUE(test::refuses(wait, ErrorCode::timeout, {"it took too long"}));
    EXPECT_NO_THROW(wait());
  }
}

TEST(EndedWork, IsNotToldOfOtherDevicesNorAfterItsSourceHasGone) {
  if (device_count() < 2) GTEST_SKIP() << "one device";
  {
    Ends ends(1);
    ends.end();
    EXPECT_NO_THROW(synchronize(0));
  }
  EXPECT_NO_THROW(synchronize(1));
}

}  // namespace
}  // namespace tutti
