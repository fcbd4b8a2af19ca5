#pragma once

#include <exception>

namespace tutti {

/// What a caching allocator does when a request finds nothing cached: asks the system, and if that refuses,
/// gives back what it can in steps, cheapest first. nullptr if nothing helped.
///
/// `Source` answers one request. `from_cache()` and `from_system()` return a block or nullptr; `reap()`
/// collects blocks that have become free, `count_retry()` keeps the statistics, `may_wait()` says whether
/// waiting is allowed; `finish_pending()` waits for those that will; `return_cached()` hands cached memory
/// back.
template <class Source>
[[nodiscard]] auto grow(Source& source) -> decltype(source.from_cache()) {
  // Between the miss and now another thread may have given something back, or made the cache grow.
  if (auto* block = source.from_cache()) return block;
  if (auto* block = source.from_system()) return block;
  if (!source.may_wait()) return nullptr;
  source.count_retry();

  source.reap();
  if (auto* block = source.from_cache()) return block;

  source.return_cached();
  if (auto* block = source.from_system()) return block;

  // What returns now may be parts of segments that are still in use elsewhere: the cache can serve what the
  // system, which gets whole segments only, cannot.
  source.finish_pending();
  if (auto* block = source.from_cache()) return block;

  source.return_cached();
  if (auto* block = source.from_cache()) return block;
  return source.from_system();
}

/// Hands back everything cached, and before that what waits for streams. Throws a failure of work queued
/// earlier, which keeps no memory, at the end.
template <class Source>
void return_all(Source& source) {
  std::exception_ptr failure;
  try {
    source.finish_pending();
  } catch (...) {
    failure = std::current_exception();
  }
  source.return_cached();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti
