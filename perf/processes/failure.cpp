// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/failure.hpp"

#include "perf/processes/interrupt.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

int importance(const std::optional<Failure>& failure) {
  if (!failure) return 0;
  if (failure->kind == Failure::Kind::interrupted) return 4;
  if (failure->kind == Failure::Kind::timed_out) return 3;
  return failure->is(ErrorCode::aborted) ? 1 : 2;
}

}  // namespace

Failure failure_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Interrupted& interrupted) {
    return {Failure::Kind::interrupted, ErrorCode::internal, interrupted.what()};
  } catch (const TimedOut& late) {
    return {Failure::Kind::timed_out, ErrorCode::internal, late.what()};
  } catch (const UsageError& error) {
    return {Failure::Kind::usage, ErrorCode::internal, error.what()};
  } catch (const Error& error) {
    return {Failure::Kind::error, error.code(), error.what()};
  } catch (const std::exception& error) {
    return {Failure::Kind::other, ErrorCode::internal, error.what()};
  } catch (...) {
    return {Failure::Kind::other, ErrorCode::internal, "unknown failure"};
  }
}

void raise(const Failure& failure) {
  switch (failure.kind) {
    case Failure::Kind::interrupted:
      throw Interrupted();
    case Failure::Kind::timed_out:
      throw TimedOut(failure.message);
    case Failure::Kind::usage:
      throw UsageError(failure.message);
    case Failure::Kind::error:
      throw Error(failure.code, failure.message);
    case Failure::Kind::other:
      break;
  }
  throw std::runtime_error(failure.message);
}

std::string encode(const Failure& failure) {
  std::string bytes{static_cast<char>(failure.kind), static_cast<char>(failure.code)};
  return bytes += failure.message;
}

Failure decode_failure(std::string_view bytes) {
  return {static_cast<Failure::Kind>(bytes.at(0)), static_cast<ErrorCode>(bytes.at(1)),
          std::string(bytes.substr(2))};
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
