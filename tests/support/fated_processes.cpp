// SPDX-License-Identifier: Apache-2.0
#include "support/fated_processes.hpp"

#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::test {

namespace {

std::chrono::nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

}  // namespace

void FatedProcesses::Self::step() {
  shared_.seen_at[number_].store(now());
  const int steps = ++shared_.steps[number_];
  if (fate_.when == Fate::When::at_step && steps == fate_.step) std::raise(fate_.signal);
}

pid_t FatedProcesses::Self::process(std::size_t other) const {
  return shared_.processes[other].load();
}

bool FatedProcesses::Self::is_silent(std::size_t other, std::chrono::milliseconds time) const {
  return now() - shared_.seen_at[other].load() > time;
}

FatedProcesses::FatedProcesses(std::vector<Fate> fates, const std::function<void(Self& self)>& work)
    : fates_(std::move(fates)) {
  for (auto& seen_at : shared_->seen_at) seen_at.store(now());
  for (std::size_t each = 0; each < fates_.size(); ++each) shared_->processes[each].store(start(each, work));
  shared_->has_begun.store(true);
  began_ = Clock::now();
}

FatedProcesses::~FatedProcesses() {
  for (std::size_t each = 0; each < fates_.size(); ++each) {
    if (has_ended_[each]) continue;
    kill(process(each), SIGKILL);
    waitpid(process(each), nullptr, 0);
  }
}

pid_t FatedProcesses::start(std::size_t process, const std::function<void(Self& self)>& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  while (!shared_->has_begun.load()) usleep(20);
  Self self(*shared_, process, fates_[process]);
  work(self);
  _exit(0);
}

bool FatedProcesses::is_over() {
  send_signals();
  note_changes();
  resume_if_all_wait();
  const bool is_late = Clock::now() - began_ > limit_;
  EXPECT_FALSE(is_late);
  std::size_t ended = 0;
  for (std::size_t each = 0; each < fates_.size(); ++each) ended += has_ended_[each] ? 1U : 0U;
  return is_late || ended == fates_.size();
}

void FatedProcesses::send_signals() {
  const auto now = Clock::now() - began_;
  for (std::size_t each = 0; each < fates_.size(); ++each) {
    Fate& fate = fates_[each];
    if (fate.when != Fate::When::at_time || now < fate.time) continue;
    fate.when = Fate::When::never;
    if (!has_ended_[each]) kill(process(each), fate.signal);
  }
}

void FatedProcesses::note_changes() {
  for (std::size_t each = 0; each < fates_.size(); ++each) {
    int status = 0;
    if (has_ended_[each] || waitpid(process(each), &status, WNOHANG | WUNTRACED) <= 0) continue;
    is_stopped_[each] = WIFSTOPPED(status);
    has_ended_[each] = !WIFSTOPPED(status);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0) << fate_of(each);
    }
  }
}

void FatedProcesses::resume_if_all_wait() {
  for (std::size_t each = 0; each < fates_.size(); ++each) {
    if (!has_ended_[each] && !is_stopped_[each]) return;
  }
  for (std::size_t each = 0; each < fates_.size(); ++each) {
    if (!has_ended_[each]) kill(process(each), SIGCONT);
    is_stopped_[each] = false;
  }
}

std::string FatedProcesses::fate_of(std::size_t process) const {
  const Fate& fate = fates_[process];
  return fmt::format("steps {} fate {} at step {} or after {} us", shared_->steps[process].load(),
                     fate.signal, fate.step, fate.time.count());
}

}  // namespace tutti::test
