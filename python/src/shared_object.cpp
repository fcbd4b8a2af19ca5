// SPDX-License-Identifier: Apache-2.0
#include "shared_object.hpp"

#include <atomic>
#include <mutex>
#include <vector>

namespace tutti::python {
namespace {

/// Python objects that other threads have dropped.
struct Graveyard {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  std::atomic<bool> has_some = false;
};
Graveyard& graveyard() {
  static auto* const graveyard = new Graveyard;  // kept for threads that outlive static objects
  return *graveyard;
}

}  // namespace

std::shared_ptr<void> shared_object(nb::handle object) {
  return {nb::borrow(object).release().ptr(), [](void* last) {
            const std::lock_guard lock(graveyard().mutex);
            graveyard().objects.push_back(static_cast<PyObject*>(last));
            graveyard().has_some = true;
          }};
}

void bury() {
  if (!graveyard().has_some) return;
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(graveyard().mutex);
    objects.swap(graveyard().objects);
    graveyard().has_some = false;
  }
  for (PyObject* const object : objects) nb::handle(object).dec_ref();
}

}  // namespace tutti::python
