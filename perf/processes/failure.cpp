// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/failure.hpp"

#include "perf/processes/interrupt.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

int importance(const std::optional<Failure>& failure) {
  if (!failure) return 0;
  if (failure->status == was_interrupted) return 4;
  if (failure->status == timed_out) return 3;
  return failure->is(ErrorCode::aborted) ? 1 : 2;
}

}  // namespace

Failure failure_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Interrupted& interrupted) {
    return {was_interrupted, {}, interrupted.what()};
  } catch (const TimedOut& late) {
    return {timed_out, {}, late.what()};
  } catch (const UsageError& error) {
    return {bad_usage, {}, error.what()};
  } catch (const Error& error) {
    return {run_failed, error.code(), error.what()};
  } catch (const std::exception& error) {
    return {run_failed, {}, error.what()};
  }
}

void raise(const Failure& failure) {
  if (failure.status == was_interrupted) throw Interrupted();
  if (failure.status == timed_out) throw TimedOut(failure.message);
  if (failure.status == bad_usage) throw UsageError(failure.message);
  if (failure.code) throw Error(*failure.code, failure.message);
  throw std::runtime_error(failure.message);
}

std::string encode(const Failure& failure) {
  const int code = failure.code ? static_cast<int>(*failure.code) : -1;
  return fmt::format("{} {} {}", static_cast<int>(failure.status), code, failure.message);
}

Failure decode_failure(const std::string& text) {
  Failure failure;
  std::size_t status_end = 0;
  std::size_t code_end = 0;
  failure.status = static_cast<ExitStatus>(std::stoi(text, &status_end));
  const int code = std::stoi(text.substr(status_end), &code_end);
  if (code >= 0) failure.code = static_cast<ErrorCode>(code);
  failure.message = text.substr(status_end + code_end + 1);
  return failure;
}

Failure first_cause(const std::vector<std::optional<Failure>>& by_rank) {
  const auto cause = std::ranges::max_element(by_rank, {}, importance);  // the first of equals
  Failure failure = cause->value();
  if (!std::ranges::all_of(by_rank, [&](const auto& other) { return other == *cause; })) {
    failure.message = fmt::format("rank {}: {}", cause - by_rank.begin(), failure.message);
  }
  return failure;
}

}  // namespace tutti::perf
