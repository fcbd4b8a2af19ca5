// SPDX-License-Identifier: Apache-2.0
#include "tensor/dlpack_versioned.hpp"

#include "support/errors.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/rng.hpp"

#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

struct VersionedDeleter {
  void operator()(DLManagedTensorVersioned* managed) const { managed->deleter(managed); }
};
using ManagedVersioned = std::unique_ptr<DLManagedTensorVersioned, VersionedDeleter>;

TEST(DLPackVersioned, SaysItsVersionAndWhetherItMayBeWrittenTo) {
  const Tensor tensor = tutti::tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const ManagedVersioned managed(to_dlpack_versioned(tensor));
  EXPECT_EQ(managed->version.major, 1U);
  EXPECT_EQ(managed->flags, 0U);
  EXPECT_EQ(managed->dl_tensor.data, tensor.data());
  EXPECT_EQ(managed->dl_tensor.ndim, 2);
  const ManagedVersioned read_only(to_dlpack_versioned(tensor, nullptr, MemoryAccess::read_only));
  EXPECT_EQ(read_only->flags, dl_flag_read_only);
  EXPECT_TRUE(test::refuses([] { static_cast<void>(to_dlpack_versioned({})); }, ErrorCode::invalid_argument,
                            {"to_dlpack_versioned", "undefined"}));
}

TEST(DLPackVersioned, GoesToAndFro) {
  const Tensor tensor = full({5}, 3, {.dtype = DType::int32, .device = Device(0)});
  Tensor back = from_dlpack_versioned(to_dlpack_versioned(tensor));
  EXPECT_EQ(back.data(), tensor.data());
  EXPECT_EQ(back.device(), Device(0));
  EXPECT_FALSE(back.is_read_only());
  back.fill_(4);
  EXPECT_EQ(tensor.to_vector<std::int32_t>(), std::vector<std::int32_t>(5, 4));
}

TEST(DLPackVersioned, KeepsWhatIsReadOnlyFromBeingWrittenTo) {
  for (const Device device : {Device(0), Device::host()}) {
    const Tensor tensor = full({5, 2}, 3, {.device = device});
    const Tensor read_only =
        from_dlpack_versioned(to_dlpack_versioned(tensor, nullptr, MemoryAccess::read_only));
    EXPECT_TRUE(read_only.is_read_only());
    const Tensor part = read_only.narrow(0, 1, 2);
    EXPECT_TRUE(part.is_read_only()) << "the same memory";
    EXPECT_TRUE(
        test::refuses([&] { part.fill_(1); }, ErrorCode::invalid_argument, {"Tensor::fill_", "read-only"}));
    EXPECT_TRUE(test::refuses(
        [&] {
          part.copy_(zeros({2, 2}));
        },
        ErrorCode::invalid_argument, {"Tensor::copy_", "read-only"}));
    if (!device.is_host()) {
      EXPECT_TRUE(
          test::refuses([&] { uniform_(part); }, ErrorCode::invalid_argument, {"uniform_", "read-only"}));
    }
    EXPECT_TRUE(test::refuses([&] { static_cast<void>(to_dlpack(part)); }, ErrorCode::invalid_argument,
                              {"to_dlpack", "read-only"}));
    const ManagedVersioned again(to_dlpack_versioned(part));
    EXPECT_EQ(again->flags, dl_flag_read_only);
    EXPECT_EQ(part.to_vector<float>(), std::vector<float>(4, 3.0F));
    EXPECT_FALSE(empty_like(part).is_read_only());
  }
}

TEST(DLPackVersioned, RefusesOtherMajorVersions) {
  EXPECT_TRUE(test::refuses([] { static_cast<void>(from_dlpack_versioned(nullptr)); },
                            ErrorCode::invalid_argument, {"nullptr"}));
  const ManagedVersioned managed(to_dlpack_versioned(zeros({2})));
  managed->version = {.major = 2, .minor = 3};
  EXPECT_TRUE(test::refuses([&] { static_cast<void>(from_dlpack_versioned(managed.get())); },
                            ErrorCode::invalid_argument,
                            {"from_dlpack_versioned", "version is 2.3", "expected 1.x"}));
}

}  // namespace
}  // namespace tutti
