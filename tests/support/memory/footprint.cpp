// SPDX-License-Identifier: Apache-2.0
#include "support/memory/footprint.hpp"

#include "support/memory/process_resources.hpp"
#include "tutti/memory.hpp"

namespace tutti::test {

Footprint Footprint::now() {
  Footprint footprint;
  footprint.in_use_ = memory_in_use();
  for (int device = 0; device < device_count(); ++device) footprint.reserved_ += memory_reserved(device);
  footprint.threads_ = threads();
  footprint.descriptors_ = open_descriptors();
  footprint.shared_mappings_ = shared_mappings();
  return footprint;
}

testing::AssertionResult Footprint::does_not_grow(const std::function<void()>& round) {
  for (int repetition = 0; repetition < 2; ++repetition) round();
  const Footprint before = now();
  for (int repetition = 0; repetition < 3; ++repetition) round();
  return now().has_not_grown_since(before);
}

testing::AssertionResult Footprint::has_not_grown_since(const Footprint& before) const {
  // When memory that other streams used returns depends on timing, so a little slack is no leak.
  const std::size_t most_reserved = before.reserved_ * 2 + (std::size_t{32} << 20U);
  if (in_use_ == before.in_use_ && threads_ == before.threads_ && descriptors_ == before.descriptors_ &&
      shared_mappings_ == before.shared_mappings_ && reserved_ <= most_reserved) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "in use: " << before.in_use_ << ", now " << in_use_
                                     << "; reserved: " << before.reserved_ << ", now " << reserved_
                                     << "; threads: " << before.threads_ << ", now " << threads_
                                     << "; descriptors: " << before.descriptors_ << ", now " << descriptors_
                                     << "; shared mappings: " << before.shared_mappings_ << ", now "
                                     << shared_mappings_;
}

}  // namespace tutti::test
