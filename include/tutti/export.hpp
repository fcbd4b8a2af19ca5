// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks a symbol as part of the library's binary interface.
#if defined(__GNUC__)
#define TUTTI_EXPORT __attribute__((visibility("default")))
#else
#define TUTTI_EXPORT
#endif
