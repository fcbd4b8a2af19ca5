// SPDX-License-Identifier: Apache-2.0
#include "backend/nvtx.hpp"

#include <nvtx3/nvToolsExt.h>

namespace tutti::backend::nvtx {
namespace {

/// nullptr where no tool listens.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("tutti");
  return made;
}

}  // namespace

bool has_listener() noexcept {
  return domain() != nullptr;
}

void mark(const char* message) noexcept {
  nvtxMarkA(message);
}

void push(const char* message) noexcept {
  nvtxRangePushA(message);
}

void pop() noexcept {
  nvtxRangePop();
}

void push_call(const char* message, std::uint64_t bytes) noexcept {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = message;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = bytes;
  nvtxDomainRangePushEx(domain(), &attributes);
}

void pop_call() noexcept {
  nvtxDomainRangePop(domain());
}

}  // namespace tutti::backend::nvtx
