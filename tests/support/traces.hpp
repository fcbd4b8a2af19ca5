// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/temporary_folder.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

/// Runs traced programs in processes of their own and reads their traces.
namespace tutti::test {

using nlohmann::json;

class Traces : public testing::Test {
 protected:
  [[nodiscard]] std::string path(std::string_view name) const { return folder_.path(name); }
  [[nodiscard]] std::string contents(std::string_view name) const { return folder_.contents(name); }
  [[nodiscard]] std::vector<std::string> files() const { return folder_.files(); }

  /// Runs `program` in a process, with its standard error in a file; unless it ends itself, the process ends
  /// as programs do. Returns the number of the process, and its `waitpid` status in `status`.
  pid_t run_to_any_end(std::string_view trace, const std::function<void()>& program, int& status) const {
    std::fflush(nullptr);  // the child would write it again
    const pid_t child = fork();
    if (child == 0) {
      setenv("TUTTI_TRACE", std::string(trace).c_str(), 1);
      if (std::freopen(path("errors").c_str(), "w", stderr) == nullptr) _exit(3);
      program();
      std::exit(HasFailure() ? 1 : 0);
    }
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return child;
  }
  /// Does the same for a program that must succeed.
  void run(std::string_view trace, const std::function<void()>& program) const {
    int status = -1;
    run_to_any_end(trace, program, status);
    EXPECT_EQ(status, 0) << contents("errors");
  }

  TemporaryFolder folder_;
};

/// A trace as a viewer reads it.
class Read {
 public:
  explicit Read(const std::string& text) : events_(json::parse(text)) {
    for (const json& event : events_) {
      if (event.at("ph") == "M" && event.at("name") == "thread_name")
        tracks_[event.at("tid")] = event.at("args").at("name");
      if (event.at("ph") == "M" && event.at("name") == "process_name") process_ = event.at("args").at("name");
    }
  }

  [[nodiscard]] const std::string& process() const noexcept { return process_; }
  /// Returns the slices of a kind on tracks whose names begin with `track`, in order of time.
  [[nodiscard]] std::vector<json> slices(std::string_view category, std::string_view track = "") const {
    std::vector<json> found;
    for (const json& event : events_) {
      if (event.at("ph") == "X" && event.at("cat") == category &&
          tracks_.at(event.at("tid")).starts_with(track))
        found.push_back(event);
    }
    std::ranges::stable_sort(found, {}, [](const json& event) { return event.at("ts").get<double>(); });
    return found;
  }
  [[nodiscard]] std::vector<json> phases(std::string_view phase) const {
    std::vector<json> found;
    std::ranges::copy_if(events_, std::back_inserter(found),
                         [&](const json& event) { return event.at("ph") == phase; });
    return found;
  }

  /// Expects that slices and ranges of each track are nested or disjoint, and that all ranges end.
  void expect_nesting() const {
    struct Span {
      double start;
      double end;
    };
    std::map<std::int64_t, std::vector<Span>> spans;
    std::map<std::int64_t, std::vector<double>> open;
    for (const json& event : events_) {
      if (event.at("ph") == "M") continue;
      const std::int64_t track = event.at("tid");
      ASSERT_TRUE(tracks_.contains(track)) << event;
      const double start = event.at("ts");
      EXPECT_GT(start, 0);
      if (event.at("ph") == "X") spans[track].push_back({start, start + event.at("dur").get<double>()});
      if (event.at("ph") == "B") open[track].push_back(start);
      if (event.at("ph") == "E") {
        ASSERT_FALSE(open[track].empty()) << event;
        spans[track].push_back({open[track].back(), start});
        open[track].pop_back();
      }
    }
    for (const auto& [track, starts] : open) EXPECT_TRUE(starts.empty()) << tracks_.at(track);
    constexpr double rounding = 0.01;
    for (auto& [track, all] : spans) {
      std::ranges::sort(all, [](const Span& a, const Span& b) {
        return a.start < b.start || (a.start == b.start && a.end > b.end);
      });
      std::vector<Span> around;
      for (const Span& span : all) {
        EXPECT_GE(span.end, span.start);
        while (!around.empty() && around.back().end <= span.start + rounding) around.pop_back();
        const double limit = around.empty() ? span.end : around.back().end + rounding;
        EXPECT_LE(span.end, limit) << tracks_.at(track);
        around.push_back(span);
      }
    }
  }

 private:
  json events_;
  std::map<std::int64_t, std::string> tracks_;
  std::string process_;
};

/// Makes a small tensor on each device.
inline std::vector<Tensor> one_on_each(const std::vector<Device>& devices) {
  std::vector<Tensor> tensors;
  for (const Device device : devices) tensors.push_back(zeros({256}, {.device = device}));
  return tensors;
}

}  // namespace tutti::test
