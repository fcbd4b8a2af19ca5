// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Lets programs that link this take all memory from some of their threads.
namespace tutti::test::ranks {

/// Makes `new` throw std::bad_alloc on threads whose names begin with `names`, for its lifetime. Only one may
/// exist at a time.
class ThreadsWithoutMemory {
 public:
  explicit ThreadsWithoutMemory(const char* names);
  ThreadsWithoutMemory(const ThreadsWithoutMemory&) = delete;
  ThreadsWithoutMemory& operator=(const ThreadsWithoutMemory&) = delete;
  ~ThreadsWithoutMemory();
};

}  // namespace tutti::test::ranks
