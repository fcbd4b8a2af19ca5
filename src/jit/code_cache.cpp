// SPDX-License-Identifier: Apache-2.0
#include "jit/code_cache.hpp"

#include "device/blocking_call.hpp"
#include "settings/environment.hpp"
#include "tutti/error.hpp"

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace tutti {
namespace {

struct CachedCode {
  std::mutex mutex;  ///< held while it is compiled
  std::shared_ptr<const backend::CompiledCode> code;
  std::set<int> devices;  ///< that it has been loaded to
};

/// Lives as long as the process: graphs use what is in it.
struct CodeCache {
  static CodeCache& get() {
    static auto* const cache = new CodeCache;
    return *cache;
  }

  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<CachedCode>> by_target_and_text;
};

}  // namespace

backend::CodeCalls& code_calls_of(backend::Backend& backend) {
  if (auto* const calls = dynamic_cast<backend::CodeCalls*>(&backend)) return *calls;
  throw Error(ErrorCode::unsupported, "these devices run no code that is compiled at run time");
}

std::shared_ptr<const backend::CompiledCode> compiled(backend::Backend& backend, int device,
                                                      const backend::CodeText& code) {
  backend::CodeCalls& calls = code_calls_of(backend);
  std::shared_ptr<CachedCode> entry;
  {
    CodeCache& cache = CodeCache::get();
    const std::lock_guard lock(cache.mutex);
    std::shared_ptr<CachedCode>& place = cache.by_target_and_text[{calls.code_target(device), code.text}];
    if (place == nullptr) place = std::make_shared<CachedCode>();
    entry = place;
  }
  const std::lock_guard lock(entry->mutex);
  if (entry->devices.contains(device)) return entry->code;
  const BlockingCall blocks("the first use of a compiled function on a device, which has to load it");
  if (entry->code == nullptr) {
    backend::CodeText complete = code;
    complete.compiler = Environment::read().jit_compiler.value_or("");
    entry->code = calls.compile(device, complete);
  }
  calls.load(device, *entry->code);
  entry->devices.insert(device);
  return entry->code;
}

}  // namespace tutti
