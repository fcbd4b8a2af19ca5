// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>

namespace tutti {

class Runtime;

/// Keeps waits for whole devices apart from the captures by which collectives are bound.
///
/// A device must not be waited for while one of its streams is being captured: the wait is refused, and the
/// capture fails. Programs do not see these captures, and any of their threads may wait. So a wait first
/// waits for the captures that have begun, which takes little time, and no capture begins before the wait is
/// over. Neither delays the other for longer than `longest_delay`: the wait may need what the other thread
/// does next, and a capture that begins later does not harm it. A part of the runtime; thread-safe.
class CaptureGate {
 public:
  explicit CaptureGate(Runtime& /*runtime*/) {}

  /// A capture, from before it begins until after it has ended.
  class Capture {
   public:
    explicit Capture(CaptureGate& gate) : gate_(gate) { gate_.begin_capture(); }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture() { gate_.leave(gate_.captures_); }

   private:
    CaptureGate& gate_;
  };
  /// A wait for a device.
  class Wait {
   public:
    explicit Wait(CaptureGate& gate) : gate_(gate) { gate_.begin_wait(); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait() { gate_.leave(gate_.waits_); }

   private:
    CaptureGate& gate_;
  };

 private:
  void begin_capture();
  void begin_wait();
  void leave(int& mine) noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  int captures_ = 0;
  int waits_ = 0;  ///< those that let captures end, too
};

}  // namespace tutti
