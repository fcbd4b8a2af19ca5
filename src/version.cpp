#include "tutti/version.hpp"

namespace tutti {

std::string_view version() noexcept {
  return TUTTI_VERSION;
}

}  // namespace tutti
