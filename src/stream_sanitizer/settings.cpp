// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/settings.hpp"

#include <utility>

namespace tutti::stream_sanitizer {

bool Settings::decide(Mode of_environment) noexcept {
  if (!is_chosen.load()) set_mode(of_environment);
  return mode() != Mode::off;
}

void Settings::choose(Mode mode) noexcept {
  is_chosen.store(true);
  set_mode(mode);
}

void Settings::set_callback(Callback callback) {
  auto shared = callback ? std::make_shared<const Callback>(std::move(callback)) : nullptr;
  const std::lock_guard lock(callback_mutex);
  told.swap(shared);
}

std::shared_ptr<const Settings::Callback> Settings::callback() {
  const std::lock_guard lock(callback_mutex);
  return told;
}

}  // namespace tutti::stream_sanitizer
