// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"
#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "os/shared_memory.hpp"
#include "settings/environment.hpp"

#include <string>

#include <unistd.h>

namespace tutti::nccl_api {
namespace {

std::array<std::uint64_t, 2> hash_of(const std::string& text) {
  std::array<std::uint64_t, 2> hash{1, 2};
  for (const char letter : text) {
    for (std::uint64_t& part : hash) part = mix(part, static_cast<unsigned char>(letter));
  }
  return hash;
}

}  // namespace

Facts own_facts() {
  const std::string host = Environment::read().host_id.value_or(host_identity());
  return {.host = hash_of(host),
          .process = mix(process_space(), static_cast<std::uint64_t>(getpid())),
          .thread = static_cast<std::uint64_t>(gettid())};
}

}  // namespace tutti::nccl_api
