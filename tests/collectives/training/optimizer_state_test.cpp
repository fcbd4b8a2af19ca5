// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/saved_optimizer.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/host_array.hpp"
#include "tutti/graph.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/// Files of a `ShardedOptimizer`, in one process. (Between processes:
/// ranks/training/optimizer_state_ranks_test.cpp.)
namespace tutti::test {
namespace {

/// An optimiser of `devices` devices.
struct Saved {
  explicit Saved(int devices)
      : communicator(CommunicatorOptions{.devices = first_devices(devices)}),
        optimizer(communicator, saved_parameters(communicator), saved_options()) {}

  Communicator communicator;
  ShardedOptimizer optimizer;
};

class OptimizerState : public testing::Test {
 protected:
  /// Checks that the file is refused, and nothing changed.
  void expect_refused(const std::vector<std::string>& fragments) {
    fill_by_place(saved_.optimizer, 3);
    std::vector<std::string> all{"ShardedOptimizer::load: " + file_.path() + ": "};
    all.insert(all.end(), fragments.begin(), fragments.end());
    EXPECT_TRUE(refuses([&] { static_cast<void>(saved_.optimizer.load(file_.path())); },
                        ErrorCode::invalid_argument, all));
    EXPECT_TRUE(is_filled_by_place(saved_.optimizer, 3)) << "nothing has changed";
  }
  /// Returns the file with the bytes at `place` replaced.
  [[nodiscard]] static std::vector<char> with(std::vector<char> bytes, std::size_t place,
                                              const std::string& other) {
    std::memcpy(bytes.data() + place, other.data(), other.size());
    return bytes;
  }

  TemporaryFile file_{"one"};
  Saved saved_{3};
};

TEST_F(OptimizerState, IsTheSameForAnyNumberOfMembers) {
  std::vector<char> first;
  for (int writers = 1; writers <= static_cast<int>(saved_.communicator.devices().size()); ++writers) {
    Saved writer(writers);
    fill_by_place(writer.optimizer, 7);
    writer.optimizer.save(file_.path(), "step 12");
    const std::vector<char> bytes = file_.read();
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << "written by " << writers << " members";
    EXPECT_TRUE(file_.is_alone());
  }
  for (int readers = 1; readers <= static_cast<int>(saved_.communicator.devices().size()); ++readers) {
    Saved reader(readers);
    fill_by_place(reader.optimizer, 1);
    EXPECT_EQ(reader.optimizer.load(file_.path()), "step 12");
    EXPECT_TRUE(is_filled_by_place(reader.optimizer, 7)) << "read by " << readers << " members";
  }
}

TEST_F(OptimizerState, FollowsTheWorkOfTheCurrentStreams) {
  const PooledStreams pooled;
  for_each_interleaving(2, [this](std::uint64_t seed) {
    for (const Device device : saved_.communicator.devices()) keep_busy(current_stream(device));
    fill_by_place(saved_.optimizer, seed + 5);
    saved_.optimizer.save(file_.path());
    fill_by_place(saved_.optimizer, 1);
    for (const Device device : saved_.communicator.devices()) keep_busy(current_stream(device));
    EXPECT_EQ(saved_.optimizer.load(file_.path()), "");
    ASSERT_TRUE(is_filled_by_place(saved_.optimizer, seed + 5));
  });
}

TEST_F(OptimizerState, OfSeveralRoundsTravelsInRounds) {
  constexpr int elements = 9 << 20;
  Communicator communicator({.devices = first_devices(2)});
  std::vector<std::vector<Tensor>> lists;
  for (const Device device : communicator.devices()) lists.push_back({zeros({elements}, {.device = device})});
  ShardedOptimizer optimizer(communicator, lists);
  const auto value = [](std::int64_t index) { return static_cast<float>(index % 8191); };
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(static_cast<std::int64_t>(i));
  for (int local = 0; local < static_cast<int>(lists.size()); ++local)
    optimizer.parameters(local)[0].copy_from(values);
  optimizer.save(file_.path());
  for (int local = 0; local < static_cast<int>(lists.size()); ++local)
    optimizer.parameters(local)[0].fill_(0);
  EXPECT_EQ(optimizer.load(file_.path()), "");
  for (int local = 0; local < static_cast<int>(lists.size()); ++local)
    EXPECT_TRUE(optimizer.parameters(local)[0].to_vector<float>() == values);
}

TEST_F(OptimizerState, ThatIsDamagedIsRefused) {
  fill_by_place(saved_.optimizer, 7);
  saved_.optimizer.save(file_.path(), std::string(100, 'x'));
  const std::vector<char> right = file_.read();
  const std::size_t size = right.size();
  const auto refused = [&](const std::vector<char>& bytes, const std::vector<std::string>& fragments) {
    file_.write(bytes);
    expect_refused(fragments);
  };
  refused(with(right, 0, "X"), {"does not begin with \"TUTTIOPT\""});
  refused(with(right, 8, "\x02"), {"has version 2, expected 1"});
  refused(with(right, 47, "\x7f"), {"has a header of ", " bytes in a file of ", "expected a valid one"});
  refused(with(right, 55, "\x7f"), {"has a header of ", "expected a valid one"});
  refused(with(right, 12, "\x03"), {"has a header of checksum ", "it is damaged"});
  refused(with(right, 100, "\x55"), {"has a header of checksum ", "it is damaged"});
  for (const std::size_t place : {size - 1, size - 9, size - 5000, size / 2}) {
    std::string flipped(1, static_cast<char>(right[place] ^ 4));
    refused(with(right, place, flipped), {"has data of checksum ", "it is damaged"});
  }
  std::vector<char> swapped = right;
  std::swap_ranges(swapped.end() - 24, swapped.end() - 16, swapped.end() - 16);
  refused(swapped, {"has data of checksum "});
  for (const std::size_t length : {size - 8, size - 1, size_t{200}}) {
    std::vector<char> cut(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(length));
    refused(cut, {length > 1000 ? "has " + std::to_string(length) + " bytes, expected " + std::to_string(size)
                                : "expected a valid one"});
  }
  std::vector<char> longer = right;
  longer.push_back('\0');
  refused(longer, {"has " + std::to_string(size + 1) + " bytes, expected " + std::to_string(size)});
  refused({}, {"has 0 bytes, expected at least the 56 of a header"});
  file_.write(right);
  EXPECT_EQ(saved_.optimizer.load(file_.path()), std::string(100, 'x'));
}

TEST_F(OptimizerState, OfAnotherOptimizerIsRefused) {
  const auto save = [&](const std::vector<Sizes>& sizes, const ShardedOptimizerOptions& options,
                        DType dtype = DType::float32) {
    Communicator communicator({.devices = {Device(0)}});
    std::vector<Tensor> parameters;
    for (const Sizes& each : sizes) parameters.push_back(zeros(each, {.dtype = dtype, .device = 0}));
    ShardedOptimizer(communicator, parameters, options).save(file_.path());
  };
  const std::vector<Sizes> sizes{{7, 33}, {}, {0, 4}, {500}, {1}};
  save(sizes, {.state_count = 2, .state_dtype = DType::float64}, DType::float16);
  expect_refused({"has parameters of float16, expected float32"});
  save(sizes, {.state_count = 1, .state_dtype = DType::float64});
  expect_refused({"has 1 state tensors, expected 2"});
  save(sizes, {.state_count = 2});
  expect_refused({"has state of float32, expected float64"});
  save({{7, 33}, {}, {0, 4}, {500}}, saved_options());
  expect_refused({"has 4 parameters, expected 5"});
  save({{33, 7}, {}, {0, 4}, {500}, {1}}, saved_options());
  expect_refused({"has parameter 0 of sizes [33, 7], expected [7, 33]"});
  save({{7, 33}, {}, {0, 4}, {499}, {1, 1}}, saved_options());
  expect_refused({"has parameter 3 of sizes [499], expected [500]"});
}

TEST_F(OptimizerState, ThatIsNoFileIsRefused) {
  expect_refused({"No such file or directory"});
  std::filesystem::create_directory(file_.path());
  expect_refused({"is not a regular file"});
  std::filesystem::remove(file_.path());
  ASSERT_EQ(mkfifo(file_.path().c_str(), 0600), 0);
  expect_refused({"is not a regular file"});
  EXPECT_TRUE(refuses([&] { static_cast<void>(saved_.optimizer.load("")); }, ErrorCode::invalid_argument,
                      {"ShardedOptimizer::load: path is empty"}));
}

TEST_F(OptimizerState, ThatCannotBeWrittenLeavesTheOlderFile) {
  fill_by_place(saved_.optimizer, 7);
  saved_.optimizer.save(file_.path());
  const std::vector<char> before = file_.read();
  fill_by_place(saved_.optimizer, 8);
  const auto refused = [&](const std::string& path, const std::vector<std::string>& fragments,
                           const std::string& extra = {}) {
    EXPECT_TRUE(refuses([&] { saved_.optimizer.save(path, extra); }, ErrorCode::invalid_argument, fragments));
    EXPECT_EQ(file_.read(), before);
    EXPECT_TRUE(file_.is_alone());
  };
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  for (const rlim_t bytes : {rlim_t{100}, rlim_t{8000}}) {
    const rlimit smaller{.rlim_cur = bytes, .rlim_max = limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &smaller), 0);
    refused(file_.path(), {"ShardedOptimizer::save: " + file_.path() + ": File too large"});
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  refused(file_.path() + "/below", {"Not a directory"});
  refused(file_.path() + "-not/below", {"No such file or directory"});
  refused(std::filesystem::path(file_.path()).parent_path(), {"cannot be replaced by a new file"});
  refused("", {"ShardedOptimizer::save: path is empty"});
  refused(file_.path(), {"extra has 4097 bytes, expected 4096 at most"}, std::string(4097, ' '));
  std::filesystem::create_hard_link(file_.path(), file_.path() + "-2");
  EXPECT_TRUE(refuses([&] { saved_.optimizer.save(file_.path()); }, ErrorCode::invalid_argument,
                      {"cannot be replaced by a new file, expected a regular file with one name"}));
  std::filesystem::remove(file_.path() + "-2");
  saved_.optimizer.save(file_.path(), std::string(4096, 'y'));
  fill_by_place(saved_.optimizer, 1);
  EXPECT_EQ(saved_.optimizer.load(file_.path()), std::string(4096, 'y'));
  EXPECT_TRUE(is_filled_by_place(saved_.optimizer, 8));
}

/// Makes the process one of another user for its lifetime, which only root may do.
class OtherUser {
 public:
  OtherUser() { EXPECT_EQ(seteuid(1), 0); }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;
  ~OtherUser() { EXPECT_EQ(seteuid(0), 0); }
};

TEST_F(OptimizerState, ThatCannotGetTheOlderFilesOwnerLeavesIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may save as another user";
  fill_by_place(saved_.optimizer, 7);
  saved_.optimizer.save(file_.path());
  const std::vector<char> before = file_.read();
  fill_by_place(saved_.optimizer, 8);
  namespace fs = std::filesystem;
  fs::permissions(fs::path(file_.path()).parent_path(), fs::perms::all);
  const auto expect_left = [&](fs::perms permissions, const std::string& reason) {
    fs::permissions(file_.path(), permissions);
    {
      const OtherUser user;
      EXPECT_TRUE(refuses([&] { saved_.optimizer.save(file_.path()); }, ErrorCode::invalid_argument,
                          {"ShardedOptimizer::save: " + file_.path() + ": " + reason}));
    }
    EXPECT_EQ(file_.read(), before);
    EXPECT_EQ(fs::status(file_.path()).permissions(), permissions);
    EXPECT_TRUE(file_.is_alone());
  };
  constexpr auto for_all = static_cast<fs::perms>(0666);
  expect_left(for_all, "Operation not permitted");
  expect_left(static_cast<fs::perms>(0644), "cannot be replaced by a new file");
  saved_.optimizer.save(file_.path());
  fill_by_place(saved_.optimizer, 1);
  EXPECT_EQ(saved_.optimizer.load(file_.path()), "");
  EXPECT_TRUE(is_filled_by_place(saved_.optimizer, 8));
}

TEST_F(OptimizerState, IsNotSavedInACapture) {
  const PooledStreams pooled;
  std::vector<Stream> streams;
  for (const Device device : saved_.communicator.devices()) streams.push_back(current_stream(device));
  const Tensor tensor = zeros({1}, {.device = 0});
  synchronize_all();
  static_cast<void>(Graph::capture(streams, [&] {
    tensor.fill_(1);
    EXPECT_TRUE(refuses([&] { saved_.optimizer.save(file_.path()); }, ErrorCode::unsupported,
                        {"ShardedOptimizer::save", "is being captured"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(saved_.optimizer.load(file_.path())); },
                        ErrorCode::unsupported, {"ShardedOptimizer::load", "is being captured"}));
  }));
}

}  // namespace
}  // namespace tutti::test
