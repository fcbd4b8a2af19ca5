#include "backend/cuda/current_device.hpp"

namespace tutti::backend::cuda {

thread_local constinit ThreadDevice thread_device;

}  // namespace tutti::backend::cuda
