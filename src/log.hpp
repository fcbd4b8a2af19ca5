#pragma once

#include <string_view>

namespace tutti {

/// One line to standard error, written at once: something works, but not as well as asked for (`TUTTI_LOG` is
/// `warn`, the default, or `info`). Never throws.
void log_warning(std::string_view message) noexcept;
/// The same for choices the library made (`TUTTI_LOG` is `info`).
void log_info(std::string_view message) noexcept;

}  // namespace tutti
