// SPDX-License-Identifier: Apache-2.0
// Structs of other libraries that describe no memory.

#include "support/errors.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

/// A tensor of four floats on the host. `change` makes it another one.
template <class Change>
testing::AssertionResult is_refused(const std::vector<std::string>& fragments, const Change& change) {
  std::array<float, 4> data{};
  std::array<std::int64_t, 2> shape{2, 2};
  DLManagedTensor managed{};
  managed.dl_tensor = {.data = data.data(),
                       .device = {kDLCPU, 0},
                       .ndim = 2,
                       .dtype = {kDLFloat, 32, 1},
                       .shape = shape.data(),
                       .strides = nullptr,
                       .byte_offset = 0};
  int deletions = 0;
  managed.manager_ctx = &deletions;
  managed.deleter = [](DLManagedTensor* self) { ++*static_cast<int*>(self->manager_ctx); };
  change(managed.dl_tensor);
  const auto result = test::refuses([&] { static_cast<void>(from_dlpack(&managed)); },
                                    ErrorCode::invalid_argument, fragments);
  EXPECT_EQ(deletions, 0) << "it stays its owner's";
  return result;
}

TEST(DlpackRefusals, OfAShapeThatIsNotThere) {
  EXPECT_TRUE(is_refused({"from_dlpack: shape is nullptr, expected 2 sizes"},
                         [](DLTensor& tensor) { tensor.shape = nullptr; }));
}

TEST(DlpackRefusals, OfMemoryThatIsNotThere) {
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{4096}}) {
    EXPECT_TRUE(is_refused({"from_dlpack: data is nullptr, expected the address of 4 elements"},
                           [offset](DLTensor& tensor) {
                             tensor.data = nullptr;
                             tensor.byte_offset = offset;
                           }));
  }
}

TEST(DlpackRefusals, OfAnOffsetThatLeadsAroundTheEnd) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE(is_refused({"from_dlpack: byte_offset is 18446744073709551612", "16 bytes of memory"},
                         [](DLTensor& tensor) { tensor.byte_offset = most - 3; }));
  EXPECT_TRUE(is_refused({"from_dlpack: byte_offset is "}, [](DLTensor& tensor) {
    // The first element ends at the last address.
    tensor.byte_offset = most - reinterpret_cast<std::uintptr_t>(tensor.data) - 3;
  }));
}

}  // namespace
}  // namespace tutti
