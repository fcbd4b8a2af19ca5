// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/fake_nccl/fake_nccl.hpp"

#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <utility>

/// Counts, errors and groups.
namespace fake_nccl {
namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, int> calls;
  std::string last_error;
};
State& state() {
  static State& only = *new State();
  return only;
}

struct Group {
  int depth = 0;
  ncclResult_t failure = ncclSuccess;
  std::vector<Step> steps;
};
thread_local Group group;

ncclResult_t carry_out() {
  const std::vector<Step> steps = std::exchange(group.steps, {});
  for (const Step& step : steps) {
    if (const ncclResult_t result = step.give(); result != ncclSuccess) return result;
  }
  for (const Step& step : steps) {
    if (const ncclResult_t result = step.take(); result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t count(const char* function) {
  {
    const std::lock_guard lock(state().mutex);
    ++state().calls[function];
  }
  const char* const failing = std::getenv("FAKE_NCCL_FAIL");
  if (failing == nullptr || std::string(failing) != function) return ncclSuccess;
  return fail(ncclSystemError, std::string("fake: ") + function + " is to fail");
}

ncclResult_t fail(ncclResult_t result, const std::string& sentence) {
  const std::lock_guard lock(state().mutex);
  state().last_error = sentence;
  if (group.depth > 0) group.failure = result;
  return result;
}

ncclResult_t add(Step step) {
  group.steps.push_back(std::move(step));
  return group.depth == 0 ? carry_out() : ncclSuccess;
}

ncclResult_t wait(const ncclComm& comm, const std::function<bool()>& condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (comm.shared->is_aborted.load() != 0) return fail(ncclRemoteError, "fake: a rank has aborted");
    if (condition()) return ncclSuccess;
    const timespec half_a_millisecond{0, 500'000};
    nanosleep(&half_a_millisecond, nullptr);
  }
  return fail(ncclSystemError, "fake: a rank does not come");
}

}  // namespace fake_nccl

using namespace fake_nccl;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

/// Returns how often a function has been called.
__attribute__((visibility("default"))) int fake_nccl_calls(const char* function) {
  const std::lock_guard lock(state().mutex);
  return state().calls[function];
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "a fake error";
}
const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string copy;
  const std::lock_guard lock(state().mutex);
  copy = state().last_error;
  return copy.c_str();
}
ncclResult_t ncclGroupStart() {
  ++group.depth;
  return count("ncclGroupStart");
}
ncclResult_t ncclGroupEnd() {
  const ncclResult_t counted = count("ncclGroupEnd");
  if (--group.depth > 0) return counted;
  const ncclResult_t failure = std::exchange(group.failure, ncclSuccess);
  if (failure == ncclSuccess) return carry_out();
  group.steps.clear();
  return failure;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
