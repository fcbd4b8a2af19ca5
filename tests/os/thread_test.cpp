// SPDX-License-Identifier: Apache-2.0
#include "os/thread.hpp"

#include "support/errors.hpp"
#include "tutti/error.hpp"

#include <array>
#include <cfenv>
#include <csignal>
#include <cstring>
#include <future>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/// How the library's own threads start and end.
namespace tutti::test {
namespace {

using backend::Escaped;
using backend::Thread;

void expect_nothing(const Escaped& escaped) {
  ADD_FAILURE() << escaped.what;
}

void run(const std::function<void()>& work) {
  Thread({.name = "tutti-test", .purpose = "that tests"}, work, &expect_nothing).join();
}

sigset_t signal_mask() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return mask;
}

sigset_t signal_mask_of_a_thread() {
  sigset_t mask;
  run([&] { mask = signal_mask(); });
  return mask;
}

/// The calling thread blocks `signal`, or does not, as long as this exists.
class Blocking {
 public:
  Blocking(int how, int signal) {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, signal);
    pthread_sigmask(how, &mask, &before_);
  }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;
  ~Blocking() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

TEST(Thread, TakesNoSignalOfTheProgramsAndAllOfItsOwnMaking) {
  const sigset_t mask = signal_mask_of_a_thread();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM, SIGCHLD, SIGUSR1, SIGUSR2, SIGPIPE,
                           SIGXFSZ, SIGXCPU, SIGWINCH, SIGIO, SIGVTALRM, SIGRTMIN, SIGRTMAX}) {
    EXPECT_EQ(sigismember(&mask, signal), 1) << strsignal(signal);
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    EXPECT_EQ(sigismember(&mask, signal), 0) << strsignal(signal);
  }
}

TEST(Thread, IsMeasuredByWhoeverMeasuresTheThreadThatStartsIt) {
  {
    const Blocking none(SIG_UNBLOCK, SIGPROF);
    const sigset_t mask = signal_mask_of_a_thread();
    EXPECT_EQ(sigismember(&mask, SIGPROF), 0);
  }
  const Blocking blocked(SIG_BLOCK, SIGPROF);
  const sigset_t mask = signal_mask_of_a_thread();
  EXPECT_EQ(sigismember(&mask, SIGPROF), 1);
}

TEST(Thread, LeavesTheSignalsOfTheThreadThatStartsItAlone) {
  const Blocking blocked(SIG_BLOCK, SIGUSR2);
  const sigset_t before = signal_mask();
  run([] {});
  const sigset_t after = signal_mask();
  for (int signal = 1; signal < SIGRTMAX; ++signal)
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
}

TEST(Thread, RunsWhereTheProcessMayAndNotWhereItsStarterHasBoundItself) {
  std::array<cpu_set_t, 16> of_process{};
  ASSERT_EQ(sched_getaffinity(0, sizeof of_process, of_process.data()), 0);
  const int processors = CPU_COUNT_S(sizeof of_process, of_process.data());
  if (processors < 2) GTEST_SKIP() << "the process has one processor";
  std::array<cpu_set_t, 16> of_thread{};
  // The first thread of a process keeps its processors.
  run([&] {
    std::size_t first = 0;
    while (!CPU_ISSET_S(first, sizeof of_process, of_process.data())) ++first;
    std::array<cpu_set_t, 16> one{};
    CPU_SET_S(first, sizeof one, one.data());
    ASSERT_EQ(sched_setaffinity(0, sizeof one, one.data()), 0);
    run([&] { ASSERT_EQ(sched_getaffinity(0, sizeof of_thread, of_thread.data()), 0); });
  });
  EXPECT_TRUE(CPU_EQUAL_S(sizeof of_process, of_process.data(), of_thread.data()));
  EXPECT_EQ(Thread::processors(), static_cast<std::size_t>(processors));
}

TEST(Thread, ComputesInTheDefaultFloatingPointEnvironment) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  int rounding = -1;
  run([&] { rounding = std::fegetround(); });
  EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the starter's is its own";
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(rounding, FE_TONEAREST);
}

TEST(Thread, IsKnownByItsNameToTools) {
  std::array<char, 16> name{};
  run([&] { pthread_getname_np(pthread_self(), name.data(), name.size()); });
  EXPECT_STREQ(name.data(), "tutti-test");
  Thread(
      {.name = "a name that is too long", .purpose = "that tests"},
      [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); }, &expect_nothing)
      .join();
  EXPECT_STREQ(name.data(), "a name that is ");
}

TEST(Thread, HandsWhatNobodyHandlesToItsLastCatch) {
  const auto escaped_of = [](const std::function<void()>& work) {
    std::pair<ErrorCode, std::string> told;
    Thread({.name = "tutti-test", .purpose = "that tests"}, work, [&](const Escaped& escaped) {
      told = {escaped.code, std::string(escaped.what)};
    }).join();
    return told;
  };
  EXPECT_EQ(escaped_of([] { throw Error(ErrorCode::timeout, "too late"); }),
            std::pair(ErrorCode::timeout, std::string("too late")));
  EXPECT_EQ(escaped_of([] { throw std::bad_alloc(); }),
            std::pair(ErrorCode::out_of_memory, std::string("out of memory")));
  EXPECT_EQ(escaped_of([] { throw std::runtime_error("broken"); }),
            std::pair(ErrorCode::internal, std::string("broken")));
  EXPECT_EQ(escaped_of([] { throw 1; }).first, ErrorCode::internal);
}

TEST(Thread, EndsByNothingThatItsLastCatchThrows) {
  Thread(
      {.name = "tutti-test", .purpose = "that tests"}, [] { throw std::runtime_error("first"); },
      [](const Escaped&) { throw std::runtime_error("second"); })
      .join();
}

TEST(Thread, LetsItselfGoInsteadOfWaitingForItself) {
  std::promise<void> is_joinable;
  std::promise<bool> was_let_go;
  Thread thread;
  thread = Thread(
      {.name = "tutti-test", .purpose = "that tests"},
      [&] {
        is_joinable.get_future().wait();
        thread.join();
        was_let_go.set_value(!thread.joinable());
      },
      &expect_nothing);
  is_joinable.set_value();
  EXPECT_TRUE(was_let_go.get_future().get());
}

TEST(Thread, ThatCannotBeHadIsAnErrorThatSaysWhatForAndWhatToRaise) {
  pthread_attr_t before;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  pthread_attr_t huge;
  pthread_attr_init(&huge);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 47U), 0);  // as when there is no room left
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const bool is_refused = refuses(
      [] {
        Thread(
            {.name = "tutti-test", .purpose = "for stream 3 of device 0"}, [] {}, &expect_nothing);
      },
      ErrorCode::out_of_memory,
      {"a thread for stream 3 of device 0", "Resource temporarily unavailable", "ulimit -u"});
  pthread_setattr_default_np(&before);
  EXPECT_TRUE(is_refused);
}

}  // namespace
}  // namespace tutti::test
