// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti::backend::host {

/// The end of a program that was run.
struct ChildEnd {
  int start_error = 0;        ///< the errno if it could not be started; 0 if it was
  std::optional<int> status;  ///< as from `waitpid`; nothing if the system does not tell
  std::string output;         ///< the beginning of its output
};

/// Runs a program, named by a path or found in PATH, and waits for its end. Thread-safe.
///
/// It gets the environment without the variables that begin with "TUTTI_", one of which is a secret, and
/// files that are open without O_CLOEXEC; its messages are in English, no signal is blocked, and SIGCHLD,
/// SIGPIPE and SIGXFSZ are not ignored. Its input is empty. The system does not tell how it ended if the
/// process ignores SIGCHLD, or waits for all its children.
[[nodiscard]] ChildEnd run_program(const std::vector<std::string>& words);

}  // namespace tutti::backend::host
