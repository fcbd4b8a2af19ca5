// SPDX-License-Identifier: Apache-2.0
#include "perf/report/output.hpp"

#include "perf/processes/failure.hpp"

#include <cerrno>
#include <cstdio>
#include <exception>

#include <fmt/format.h>

namespace tutti::perf {

void Output::print(const std::string& text) const {
  if (!speaks_ || is_closed_) return;
  if (std::fputs(text.c_str(), stdout) != EOF && std::fflush(stdout) != EOF) return;
  is_closed_ = true;
  is_broken_ = errno != EPIPE;
}

void Output::complain(const std::string& text) const {
  if (speaks_) fmt::print(stderr, "{}: {}\n", program_, text);
}

int guarded(const Output& output, const std::function<int()>& work) {
  try {
    return work();
  } catch (const std::exception&) {
    const Failure failure = failure_of(std::current_exception());
    output.complain(failure.message);
    return failure.status;
  }
}

}  // namespace tutti::perf
