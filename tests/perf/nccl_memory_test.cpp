// SPDX-License-Identifier: Apache-2.0
#include "perf/nccl_memory.hpp"

#include "fake_nccl.hpp"
#include "parsed_options.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

std::string file_of(const char* variable) {
  const char* const file = std::getenv(variable);
  return file != nullptr ? file : "";
}

/// The library's, which has been asked for nothing yet.
FakeNccl& start_fake(const std::string& file) {
  setenv("TUTTI_NCCL_LIBRARY", file.c_str(), 1);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  FakeNccl& fake = *reinterpret_cast<FakeNccl* (*)()>(dlsym(library, "fake_nccl"))();
  fake = {};
  return fake;
}

/// Two virtual devices, of which NCCL has been told nothing.
class PerfNcclMemory : public testing::Test {
 protected:
  /// The name that NCCL has for own member `own`.
  [[nodiscard]] ncclComm_t communicator(std::size_t own) {
    return reinterpret_cast<ncclComm_t>(&names_[own]);
  }

  FakeNccl& fake_ = start_fake(file_of("TUTTI_FAKE_NCCL"));
  NcclLibrary nccl_;
  std::unique_ptr<Processes> processes_ = make_single_process();
  Options options_ = parsed({"broadcast", "--backend", "host", "-g", "2"});
  Session session_{options_, *processes_};
  char names_[2] = {};
  std::vector<ncclComm_t> communicators_{communicator(0), communicator(1)};
};

TEST_F(PerfNcclMemory, ComesFromTheLibraryThatTheVariableNames) {
  EXPECT_EQ(nccl_.path(), file_of("TUTTI_FAKE_NCCL"));
  EXPECT_EQ(nccl_.version_text(), "2.28.3");
}

TEST_F(PerfNcclMemory, OfWindowsIsSymmetricAndAsLargeInEveryMember) {
  {
    NcclMemory memory(NcclMemory::Kind::windows, nccl_, session_, communicators_);
    EXPECT_EQ(memory.refusal(), "");
    memory.reserve(3, mebibyte);
    ASSERT_EQ(fake_.windows.size(), 2U);
    EXPECT_EQ(fake_.registrations_outside_groups, 0);
    for (std::size_t own = 0; own < 2; ++own) {
      EXPECT_EQ(fake_.windows[own].communicator, communicators_[own]);
      EXPECT_EQ(fake_.windows[own].bytes, 4 * mebibyte);
      EXPECT_EQ(fake_.windows[own].flags, 1);
    }
    for (const std::size_t set : {0U, 2U, 1U}) {
      memory.start_set(set);
      for (std::size_t own = 0; own < 2; ++own) {
        const auto* const piece = static_cast<const std::byte*>(fake_.windows[own].memory);
        const Tensor first = memory.make({100}, DType::float32, own);
        const Tensor empty = memory.make({0}, DType::float32, own);
        const Tensor second = memory.make({2, 3}, DType::int64, own);
        EXPECT_EQ(static_cast<const std::byte*>(first.data()) - piece,
                  static_cast<std::ptrdiff_t>(set * mebibyte));
        EXPECT_EQ(static_cast<const std::byte*>(second.data()) - static_cast<const std::byte*>(first.data()),
                  1024);
        EXPECT_EQ(second.dtype(), DType::int64);
        EXPECT_EQ(second.numel(), 6);
        EXPECT_EQ(empty.numel(), 0);
        EXPECT_THROW(static_cast<void>(memory.make({1 << 18}, DType::float32, own)), Error);
      }
    }
  }
  EXPECT_TRUE(fake_.windows.empty());
  EXPECT_TRUE(fake_.memory.empty());
  EXPECT_EQ(fake_.open_groups, 0);
}

TEST_F(PerfNcclMemory, IsKeptAsLongAsItIsLargeEnoughAndNotLarge) {
  NcclMemory memory(NcclMemory::Kind::buffers, nccl_, session_, communicators_);
  memory.reserve(2, mebibyte);
  memory.reserve(32, 1024);
  memory.trim();
  EXPECT_EQ(fake_.registrations, 2);
  EXPECT_EQ(fake_.buffers.size(), 2U);
  EXPECT_TRUE(fake_.windows.empty());
  memory.reserve(1, 100 * mebibyte);
  EXPECT_EQ(fake_.registrations, 4);
  EXPECT_EQ(fake_.buffers.size(), 2U);
  EXPECT_EQ(fake_.memory.size(), 2U);
  memory.trim();
  EXPECT_TRUE(fake_.buffers.empty());
  EXPECT_TRUE(fake_.memory.empty());
}

TEST_F(PerfNcclMemory, IsRefusedForGoodWhereDevicesHaveNoWindows) {
  for (const bool refuses : {false, true}) {
    fake_ = {};
    fake_.has_windows = refuses;  // or gives none, and calls it a success
    fake_.refuses_windows = refuses;
    NcclMemory memory(NcclMemory::Kind::windows, nccl_, session_, communicators_);
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        memory.reserve(1, 1024);
        ADD_FAILURE() << "there is none";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::unsupported);
        EXPECT_NE(std::string(error.what()).find("makes no symmetric windows"), std::string::npos);
      }
    }
    EXPECT_NE(memory.refusal(), "");
    EXPECT_EQ(memory.refusal().find("on purpose") != std::string::npos, refuses) << memory.refusal();
    EXPECT_TRUE(fake_.memory.empty());
    EXPECT_EQ(fake_.allocations_left, 1000 - 2);
  }
}

TEST_F(PerfNcclMemory, IsTriedAgainWhereThereWasTooLittle) {
  NcclMemory memory(NcclMemory::Kind::windows, nccl_, session_, communicators_);
  fake_.allocations_left = 1;
  try {
    memory.reserve(1, 1024);
    ADD_FAILURE() << "there is too little";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
  EXPECT_TRUE(fake_.memory.empty());
  EXPECT_EQ(memory.refusal(), "");
  fake_.allocations_left = 2;
  memory.reserve(1, 1024);
  EXPECT_EQ(fake_.windows.size(), 2U);
}

TEST_F(PerfNcclMemory, IsRefusedByLibrariesThatCannotRegister) {
  start_fake(file_of("TUTTI_FAKE_NCCL_OLD"));
  const NcclLibrary old;
  const NcclMemory windows(NcclMemory::Kind::windows, old, session_, communicators_);
  EXPECT_EQ(windows.refusal(), "NCCL 2.18.1 has no ncclCommWindowRegister, expected 2.27 or newer");
  const NcclMemory buffers(NcclMemory::Kind::buffers, old, session_, communicators_);
  EXPECT_EQ(buffers.refusal(), "NCCL 2.18.1 has no ncclCommRegister, expected 2.19 or newer");
}

}  // namespace
}  // namespace tutti::perf
