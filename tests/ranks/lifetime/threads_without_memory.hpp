// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs that link this can take all memory from some of their threads.
namespace tutti::test::ranks {

/// While it exists, `new` throws std::bad_alloc on threads whose names begin with `names`. One at a time.
class ThreadsWithoutMemory {
 public:
  explicit ThreadsWithoutMemory(const char* names);
  ThreadsWithoutMemory(const ThreadsWithoutMemory&) = delete;
  ThreadsWithoutMemory& operator=(const ThreadsWithoutMemory&) = delete;
  ~ThreadsWithoutMemory();
};

}  // namespace tutti::test::ranks
