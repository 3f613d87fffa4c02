#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What is said when an address is not the right one, by trainctl and by members."""
import os
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    BIN, USAGE, Cluster, main, test, wait_until)


class Banner:
    """A port that greets everybody as a mail server does."""

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.ends = []
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def serve(self):
        while True:
            try:
                end, _ = self.listener.accept()
                end.sendall(b"220 mail.example ESMTP\r\n")
                self.ends.append(end)
            except OSError:
                return

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for end in self.ends:
            end.close()


def ask(address):
    done = subprocess.run([os.path.join(BIN, "trainctl"), "--coordinator", address, "--timeout", "5", "list"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=60)
    return done.returncode, done.stderr


@test(limit_s=60)
def trainctl_says_that_it_was_given_the_address_of_another_role():
    with Cluster(ps=1, workers=1, device="fake") as c:
        rc, words = ask(c.address("psd-0"))
        assert rc == USAGE and "it is a parameter server (psd)" in words, (rc, words)
        rc, words = ask(c.address("workerd-0"))
        assert rc == USAGE and "it is a worker (workerd)" in words, (rc, words)


@test(limit_s=60)
def members_say_what_is_at_the_address_of_their_coordinator():
    with Cluster(ps=1, workers=1, device="fake") as c, Banner() as banner:
        for name in ("psd-0", "workerd-0"):
            c.stop_daemon(name)
            c.set_args(name, coordinator=banner.address)
            c.start_daemon(name)
            wait_until(lambda name=name: "220 mail.example ESMTP" in c.log(name), 20, f"{name} says what it found")
            line = next(line for line in c.log(name).splitlines() if "220 mail.example ESMTP" in line)
            assert "event=coordinator.unreachable" in line and banner.address in line, line


if __name__ == "__main__":
    sys.exit(main())
