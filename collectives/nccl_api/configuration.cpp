// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/configuration.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/base/settings.hpp"

#include <cstring>

#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

template <class Member>
bool is_asked_for(const ncclConfig_t& config, Member ncclConfig_t::*member) {
  const auto* const end = reinterpret_cast<const std::byte*>(&(config.*member) + 1);
  const bool is_there = end <= reinterpret_cast<const std::byte*>(&config) + config.size;
  return is_there && config.*member != NCCL_CONFIG_UNDEF_INT && config.*member > 0;
}

}  // namespace

void require_config(const char* function, const ncclConfig_t* config) {
  if (config == nullptr || config->magic == NCCL_API_MAGIC) return;
  throw Refusal{
      ncclInvalidArgument,
      fmt::format("{}: config has not been initialized, expected NCCL_CONFIG_INITIALIZER", function)};
}

Configuration configuration_of(const ncclConfig_t* config) {
  if (config == nullptr) return {};
  const auto* const bytes = reinterpret_cast<const std::byte*>(config);
  Configuration copy(bytes, bytes + config->size);
  const int blocking = 1;
  if (copy.size() >= offsetof(ncclConfig_t, blocking) + sizeof(blocking))
    std::memcpy(copy.data() + offsetof(ncclConfig_t, blocking), &blocking, sizeof(blocking));
  return copy;
}

ncclConfig_t* config_in(Configuration& configuration) noexcept {
  return configuration.empty() ? nullptr : reinterpret_cast<ncclConfig_t*>(configuration.data());
}

Need need_of(const ncclConfig_t* config) {
  if (Settings::get().fallback == Fallback::always) return Need::always;
  if (config == nullptr) return Need::none;
  const bool is_one_sided = is_asked_for(*config, &ncclConfig_t::numRmaCtx) ||
                            is_asked_for(*config, &ncclConfig_t::numRmaSig) ||
                            is_asked_for(*config, &ncclConfig_t::rmaEagerInit);
  return is_one_sided ? Need::one_sided : Need::none;
}

}  // namespace tutti::nccl_api
