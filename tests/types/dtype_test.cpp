// SPDX-License-Identifier: Apache-2.0
#include "tutti/dtype.hpp"

#include "support/errors.hpp"

#include <string>
#include <type_traits>

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(DType, HasStableNumbers) {
  EXPECT_EQ(static_cast<int>(DType::float16), 0);
  EXPECT_EQ(static_cast<int>(DType::int64), 8);
  EXPECT_EQ(static_cast<int>(DType::float8_e5m2), 13);
  for (std::size_t i = 0; i < all_dtypes.size(); ++i) EXPECT_EQ(static_cast<std::size_t>(all_dtypes[i]), i);
}

TEST(DType, VisitsTheCppTypeWithItsSize) {
  for (const DType dtype : all_dtypes) {
    visit_dtype(dtype, [dtype]<class T>() {
      EXPECT_EQ(dtype_of<T>, dtype);
      EXPECT_EQ(sizeof(T), size_of(dtype)) << name_of(dtype);
      EXPECT_TRUE(std::is_trivially_copyable_v<T>);
    });
  }
}

TEST(DType, ParsesItsOwnNames) {
  for (const DType dtype : all_dtypes) EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  EXPECT_EQ(name_of(DType::boolean), "bool");
  EXPECT_EQ(name_of(DType::float8_e4m3), "float8_e4m3");
  EXPECT_EQ(name_of(DType::uint16), "uint16");
  EXPECT_EQ(name_of(DType::uint32), "uint32");
  EXPECT_EQ(name_of(DType::uint64), "uint64");
}

TEST(DType, ParsesShortForms) {
  EXPECT_EQ(parse_dtype("f16"), DType::float16);
  EXPECT_EQ(parse_dtype("half"), DType::float16);
  EXPECT_EQ(parse_dtype("bf16"), DType::bfloat16);
  EXPECT_EQ(parse_dtype("float"), DType::float32);
  EXPECT_EQ(parse_dtype("double"), DType::float64);
  EXPECT_EQ(parse_dtype("u8"), DType::uint8);
  EXPECT_EQ(parse_dtype("i64"), DType::int64);
  EXPECT_EQ(parse_dtype("u16"), DType::uint16);
  EXPECT_EQ(parse_dtype("u32"), DType::uint32);
  EXPECT_EQ(parse_dtype("u64"), DType::uint64);
  EXPECT_EQ(parse_dtype("c128"), DType::complex128);
  EXPECT_EQ(parse_dtype("e4m3"), DType::float8_e4m3);
  EXPECT_EQ(parse_dtype("e5m2"), DType::float8_e5m2);
}

TEST(DType, RefusesUnknownNamesAndListsTheKnown) {
  for (const char* text : {"float31", "", "FLOAT32", " float32"}) {
    EXPECT_TRUE(test::refuses([&] { static_cast<void>(parse_dtype(text)); }, ErrorCode::invalid_argument,
                              {"parse_dtype", '"' + std::string(text) + '"', "bfloat16", "float8_e5m2"}));
  }
}

}  // namespace
}  // namespace tutti
