// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/code_calls.hpp"

#include <chrono>

namespace tutti::backend::host {

/// Compiles `code` with the system's C++ compiler into a shared object, which stays loaded, and returns its
/// entry; the files are removed. Throws Error(invalid_argument) with the compiler's message if it refuses the
/// text, or with the loader's if the text uses undefined symbols. Faults that are not the text's have
/// messages of their own: Error(out_of_memory) if the system refuses room, memory or processes, and
/// Error(unsupported) if there is no compiler, it cannot be started, is ended by a signal, fails without an
/// error in the text, has not ended within `limit`, or makes an object that cannot be loaded, and if there is
/// no place for its files.
[[nodiscard]] void* compile_with_system(const CodeText& code,
                                        std::chrono::milliseconds limit = std::chrono::minutes(2));

}  // namespace tutti::backend::host
