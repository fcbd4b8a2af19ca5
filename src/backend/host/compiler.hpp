// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/code_calls.hpp"

namespace tutti::backend::host {

/// The entry of `code`, compiled by the system's C++ compiler into a shared object, which stays loaded; the
/// files are gone. Throws Error(unsupported) if there is no compiler or nowhere to put its files,
/// and Error(invalid_argument) with what it says if it refuses the text.
[[nodiscard]] void* compile_with_system(const CodeText& code);

}  // namespace tutti::backend::host
