// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/code_calls.hpp"

namespace tutti::backend::host {

/// The entry of `code`, compiled by the system's C++ compiler into a shared object, which stays loaded; the
/// files are gone. Throws Error(invalid_argument) with the compiler's words if it refuses the text, or with
/// the loader's if the text uses what is defined nowhere. What is not the text's fault has messages of its
/// own: Error(out_of_memory) where the system refuses room, memory or processes, and Error(unsupported) if
/// there is no compiler, it cannot be started, is ended by a signal, fails without an error in the text, or
/// makes what cannot be loaded, and if there is nowhere to put its files.
[[nodiscard]] void* compile_with_system(const CodeText& code);

}  // namespace tutti::backend::host
