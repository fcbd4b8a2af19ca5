// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/code_calls.hpp"

#include <memory>

namespace tutti {

/// Returns the code calls of the backend. Throws Error(unsupported) if it has none.
[[nodiscard]] backend::CodeCalls& code_calls_of(backend::Backend& backend);

/// Returns `code` compiled for `device` and loaded there: compiles it now if nobody in this process has
/// before. Several threads that want the same wait for one of them; a failure is not kept. Throws what
/// `CodeCalls::compile` does.
[[nodiscard]] std::shared_ptr<const backend::CompiledCode> compiled(backend::Backend& backend, int device,
                                                                    const backend::CodeText& code);

}  // namespace tutti
