// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/at_once.hpp"

#include <exception>
#include <vector>

namespace tutti::nccl_api {

void do_at_once(std::size_t count, const backend::Thread::Role& role,
                const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  const auto attempt = [&](std::size_t i) {
    try {
      work(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<backend::Thread> threads;
    for (std::size_t i = 1; i < count; ++i)
      threads.emplace_back(
          role, [&attempt, i] { attempt(i); }, [](const backend::Escaped&) {});
    attempt(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace tutti::nccl_api
