// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_memory.hpp"

#include "perf/options/parsed_options.hpp"
#include "perf/peers/fake_nccl.hpp"
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
constexpr NcclCallKind collective = NcclCallKind::collective;

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
  [[nodiscard]] NcclMemory memory_of(NcclMemory::Kind kind, bool on_device = true) {
    return {kind, nccl_, session_, communicators_, [on_device](const void*) { return on_device; }};
  }

  FakeNccl& fake_ = start_fake(file_of("TUTTI_FAKE_NCCL"));
  NcclLibrary nccl_;
  std::unique_ptr<Processes> processes_ = make_single_process();
  Options options_ = parsed({"broadcast", "--backend", "host", "-g", "2"});
  Session session_{options_, *processes_};
  NcclCommunicators communicators_{nccl_, session_};
};

TEST_F(PerfNcclMemory, ComesFromTheLibraryThatTheVariableNames) {
  EXPECT_EQ(nccl_.path(), file_of("TUTTI_FAKE_NCCL"));
  EXPECT_EQ(nccl_.version_text(), "2.28.3");
}

TEST_F(PerfNcclMemory, OfWindowsIsSymmetricAndAsLargeInEveryMember) {
  {
    NcclMemory memory = memory_of(NcclMemory::Kind::windows);
    EXPECT_EQ(memory.refusal(), "");
    EXPECT_FALSE(communicators_.are_made());
    memory.reserve(3, mebibyte, collective);
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
  EXPECT_TRUE(fake_.communicators.empty());
  EXPECT_EQ(fake_.open_groups, 0);
}

TEST_F(PerfNcclMemory, IsAllThatItsCommunicatorsEverKnow) {
  for (const auto kind : {NcclMemory::Kind::buffers, NcclMemory::Kind::windows}) {
    fake_ = {};
    NcclMemory memory = memory_of(kind);
    memory.reserve(1, mebibyte, collective);
    memory.reserve(1, 3 * mebibyte,
                   collective);  // the library refuses a second registration by the same communicator
    EXPECT_EQ(fake_.communicators_made, 4U);
    EXPECT_EQ(fake_.communicators.size(), 2U);
    memory.release();
    EXPECT_FALSE(communicators_.are_made());
    EXPECT_TRUE(fake_.communicators.empty());
    EXPECT_TRUE(fake_.memory.empty());
    memory.reserve(1, mebibyte, collective);
    EXPECT_EQ(fake_.communicators_made, 6U);
    EXPECT_EQ(fake_.aborts, 0);
    EXPECT_EQ(fake_.frees_under_communicators, 0);
  }
}

TEST_F(PerfNcclMemory, IsGotOnceForAllThatIsForeseen) {
  NcclMemory memory = memory_of(NcclMemory::Kind::windows);
  memory.foresee(200 * mebibyte);
  memory.foresee(mebibyte);
  for (const std::size_t bytes : {std::size_t{1024}, 100 * mebibyte, 200 * mebibyte}) {
    memory.reserve(1, bytes, collective);
    memory.trim();
  }
  EXPECT_EQ(fake_.registrations, 2);
  ASSERT_EQ(fake_.windows.size(), 2U);
  EXPECT_EQ(fake_.windows[0].bytes, 200 * mebibyte);
  EXPECT_EQ(fake_.communicators_made, 2U);
}

TEST_F(PerfNcclMemory, IsKeptAsLongAsItIsLargeEnoughAndNotLarge) {
  NcclMemory memory = memory_of(NcclMemory::Kind::buffers);
  memory.reserve(2, mebibyte, collective);
  memory.reserve(32, 1024, collective);
  memory.trim();
  EXPECT_EQ(fake_.registrations, 2);
  EXPECT_EQ(fake_.buffers.size(), 2U);
  EXPECT_TRUE(fake_.windows.empty());
  memory.reserve(1, 100 * mebibyte, collective);
  EXPECT_EQ(fake_.registrations, 4);
  EXPECT_EQ(fake_.buffers.size(), 2U);
  EXPECT_EQ(fake_.memory.size(), 2U);
  memory.trim();
  EXPECT_TRUE(fake_.buffers.empty());
  EXPECT_TRUE(fake_.memory.empty());
}

TEST_F(PerfNcclMemory, IsGotAnewForCollectivesAfterMessagesWhereTheseWouldBeLost) {
  for (const int version : {22204, 22304, 22809, 22902, 23007}) {
    fake_ = {};
    fake_.version = version;
    const std::size_t anew = version == 22304 || version == 22809 ? 2 : 0;
    NcclMemory memory = memory_of(NcclMemory::Kind::buffers);
    std::size_t made = 2;
    for (const auto kind : {collective, NcclCallKind::messages, NcclCallKind::messages}) {
      memory.reserve(1, mebibyte, kind);
      EXPECT_EQ(fake_.communicators_made, made) << version;
    }
    for (int time = 0; time < 2; ++time) {
      memory.reserve(1, mebibyte, collective);
      EXPECT_EQ(fake_.communicators_made, made + anew) << version;
    }
    // Messages that are the first calls in new memory are not forgotten.
    memory.reserve(1, 8 * mebibyte, NcclCallKind::messages);
    made += anew + 2;
    EXPECT_EQ(fake_.communicators_made, made) << version;
    memory.reserve(1, mebibyte, collective);
    EXPECT_EQ(fake_.communicators_made, made + anew) << version;
    EXPECT_EQ(fake_.frees_under_communicators, 0);
    EXPECT_EQ(fake_.memory.size(), 2U);
  }
}

TEST_F(PerfNcclMemory, IsRefusedForGoodWhereDevicesHaveNoWindows) {
  enum class Way : std::uint8_t { refuses, gives_none, gives_a_buffers_handle };
  for (const Way way : {Way::refuses, Way::gives_none, Way::gives_a_buffers_handle}) {
    const bool refuses = way == Way::refuses;
    fake_ = {};
    fake_.has_windows = way != Way::gives_none;  // and calls it a success
    fake_.refuses_windows = refuses;
    NcclMemory memory = memory_of(NcclMemory::Kind::windows, way != Way::gives_a_buffers_handle);
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        memory.reserve(1, 1024, collective);
        ADD_FAILURE() << "there is none";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::unsupported);
        EXPECT_NE(std::string(error.what()).find("makes no symmetric windows"), std::string::npos);
      }
    }
    EXPECT_NE(memory.refusal(), "");
    EXPECT_EQ(memory.refusal().find("on purpose") != std::string::npos, refuses) << memory.refusal();
    EXPECT_TRUE(fake_.memory.empty());
    EXPECT_TRUE(fake_.windows.empty());
    EXPECT_EQ(fake_.allocations_left, 1000 - 2);
    // What has failed is not waited for.
    EXPECT_EQ(fake_.aborts, refuses ? 2 : 0);
    EXPECT_TRUE(fake_.communicators.empty());
  }
}

TEST_F(PerfNcclMemory, IsRefusedForGoodWhereNoBuffersAreRegistered) {
  fake_.registers_buffers = false;
  setenv("NCCL_LOCAL_REGISTER", "0", 1);
  NcclMemory memory = memory_of(NcclMemory::Kind::buffers);
  EXPECT_THROW(memory.reserve(1, 1024, collective), Error);
  unsetenv("NCCL_LOCAL_REGISTER");
  EXPECT_EQ(memory.refusal(), "NCCL 2.28.3 registers no buffers: NCCL_LOCAL_REGISTER is 0");
  EXPECT_TRUE(fake_.memory.empty());
}

TEST_F(PerfNcclMemory, IsTriedAgainWhereThereWasTooLittle) {
  NcclMemory memory = memory_of(NcclMemory::Kind::windows);
  fake_.allocations_left = 1;
  try {
    memory.reserve(1, 1024, collective);
    ADD_FAILURE() << "there is too little";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
  EXPECT_TRUE(fake_.memory.empty());
  EXPECT_EQ(memory.refusal(), "");
  fake_.allocations_left = 2;
  memory.reserve(1, 1024, collective);
  EXPECT_EQ(fake_.windows.size(), 2U);
}

TEST_F(PerfNcclMemory, IsRefusedByLibrariesThatCannotRegister) {
  start_fake(file_of("TUTTI_FAKE_NCCL_OLD"));
  const NcclLibrary old;
  NcclCommunicators communicators(old, session_);
  const NcclMemory windows(NcclMemory::Kind::windows, old, session_, communicators);
  EXPECT_EQ(windows.refusal(), "NCCL 2.18.1 has no ncclCommWindowRegister, expected 2.27 or newer");
  const NcclMemory buffers(NcclMemory::Kind::buffers, old, session_, communicators);
  EXPECT_EQ(buffers.refusal(), "NCCL 2.18.1 has no ncclCommRegister, expected 2.19 or newer");
}

}  // namespace
}  // namespace tutti::perf
