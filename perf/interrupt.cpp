#include "interrupt.hpp"

#include <csignal>

namespace tutti::perf {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

extern "C" void note_interrupt(int signal) {
  interrupt_seen = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void watch_interrupts() {
  std::signal(SIGINT, note_interrupt);
  std::signal(SIGTERM, note_interrupt);
  std::signal(SIGPIPE, SIG_IGN);
}

void check_interrupt() {
  if (interrupt_seen != 0) throw Interrupted();
}

}  // namespace tutti::perf
