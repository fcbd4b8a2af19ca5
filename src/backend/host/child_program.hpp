// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tutti::backend::host {

/// The end of a program that was run.
struct ChildEnd {
  int start_error = 0;        ///< the errno if it could not be started; 0 if it was
  std::optional<int> status;  ///< as from `waitpid`; nothing if the system does not tell
  std::string output;         ///< the beginning of its output
  bool was_late = false;      ///< it had not ended within the limit, and was killed
};

/// Runs a program, named by a path or found in PATH, and waits for its end. Thread-safe.
///
/// After `limit`, the program is killed with all that it has started, which is why it gets a process group of
/// its own. A kernel without pidfd_open (before Linux 5.3) cannot wait so: there is no limit then.
///
/// It gets the environment without the variables that begin with "TUTTI_", one of which is a secret, and
/// files that are open without O_CLOEXEC; its messages are in English, no signal is blocked, and SIGCHLD,
/// SIGPIPE and SIGXFSZ are not ignored. Its input is empty. The system does not tell how it ended if the
/// process ignores SIGCHLD, or waits for all its children.
[[nodiscard]] ChildEnd run_program(const std::vector<std::string>& words, std::chrono::milliseconds limit);

}  // namespace tutti::backend::host
