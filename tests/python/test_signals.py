# SPDX-License-Identifier: Apache-2.0
"""Signal handlers of the program run while the main thread waits, and may wait themselves."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import tutti

# faulthandler calls the handler that was there before it: the package's, which puts itself before that again.
CHAIN = """
import faulthandler, os, signal, tempfile, time
import tutti
tutti.virtual_devices.start(devices=1)
communicator = tutti.Communicator.local([0])

def make_calls():
    end = time.monotonic() + 0.05  # the package looks for other handlers every 10 ms
    while time.monotonic() < end:
        communicator.barrier()

make_calls()
with tempfile.TemporaryFile() as log:
    faulthandler.register(signal.SIGINT, log, chain=True)
    for _ in range(3):
        make_calls()
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
        except KeyboardInterrupt:
            print("interrupted", log.seek(0, os.SEEK_END) > 0)
"""


# A forked child may have devices and ranks of its own, but has none of its parent's threads.
CHILD = """
import os, signal, sys, threading, time
import tutti

class Store(dict):
    set, get = dict.__setitem__, dict.__getitem__

    def check(self, keys):
        return all(key in self for key in keys)

def rank(number):
    ranks[number] = tutti.Communicator.from_store(store, number, 2, devices=[number], patience=30)

tutti.virtual_devices.start(devices=2)
with tutti.Communicator.local([0]) as communicator:
    communicator.barrier()
if os.fork() != 0:
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
tutti.virtual_devices.start(devices=2)
store, ranks = Store(), {}
other = threading.Thread(target=rank, args=(1,))
other.start()
rank(0)
other.join()
begin = time.monotonic()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    ranks[0].split(0)  # which the other rank does not call
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 20, ranks[0].is_running(), flush=True)
os._exit(0)
"""


class Stopped(Exception):
    pass


def delay(device, seconds):
    """Queues work on the device that takes so long."""
    tutti.virtual_devices.inject("kernel", "delay", device=device, delay_microseconds=int(seconds * 1e6))
    tutti.ones([4], device=device)


class Handlers(unittest.TestCase):
    def setUp(self):
        self.addCleanup(tutti.virtual_devices.clear_faults)
        for device in (0, 1):
            tutti.synchronize(device)

    def handle(self, number, handler):
        self.addCleanup(signal.signal, number, signal.signal(number, handler))

    def send_after(self, seconds, number):
        timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
        timer.start()
        self.addCleanup(timer.join)

    def test_a_handler_waits_for_other_work_meanwhile(self):
        waits = []

        def wait_for_device_0(*_):
            tutti.synchronize(0)
            waits.append(tutti.current_stream(1).query())

        self.handle(signal.SIGUSR1, wait_for_device_0)
        delay(1, 2)
        self.send_after(0.1, signal.SIGUSR1)
        tutti.synchronize(1)
        self.assertEqual(waits, [False])  # device 1 was not done yet

    def expect_output(self, program, output):
        command = [sys.executable, "-c", program]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((ended.returncode, ended.stdout), (0, output), ended.stderr)

    def test_handlers_of_other_libraries_may_call_the_one_before(self):
        self.expect_output(CHAIN, "interrupted True\n" * 3)

    def test_ctrl_c_ends_calls_of_a_forked_child(self):
        self.expect_output(CHILD, "interrupted True False\n")

    def test_an_exception_ends_waits_within_waits(self):
        def stop(*_):
            raise Stopped

        self.handle(signal.SIGUSR1, lambda *_: tutti.synchronize(0))
        self.handle(signal.SIGUSR2, stop)
        delay(0, 2)
        delay(1, 2)
        self.send_after(0.1, signal.SIGUSR1)
        self.send_after(0.3, signal.SIGUSR2)
        begin = time.monotonic()
        with self.assertRaises(Stopped):
            tutti.synchronize(1)
        self.assertLess(time.monotonic() - begin, 1.8)
        for device in (0, 1):
            tutti.synchronize(device)
            self.assertTrue(tutti.current_stream(device).query())


if __name__ == "__main__":
    unittest.main()
