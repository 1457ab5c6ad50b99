"""A program in a pseudo-terminal, read and typed at as a person would."""

import fcntl
import os
import pty
import re
import struct
import termios
import threading
import time
from pathlib import Path

from tests.cli.warm import HOME, ROOT, SECONDS, Process, environment  # noqa: F401

UNSEEN = re.compile(r"\x1b\[\?2004(h|l\r?)|(\d+ s)?\r\x1b\[K")  # pastes; seconds, erased
CTRL_C, CTRL_D = "\x03", "\x04"


class Screen:
    """`agentloop` with these arguments.

    `output` is all that it wrote, `plain` the same without colours, and without the seconds that
    it shows while it waits.
    """

    def __init__(self, *arguments, cwd, columns=80, **env):
        self.master, terminal = pty.openpty()
        self.resize(columns)
        streams = [os.ttyname(terminal)] * 3
        self.process = Process(*arguments, cwd=cwd, streams=streams, env=environment(**env))
        os.close(terminal)
        self.output = self.plain = ""
        self._read_to = 0
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.wait(0) is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(SECONDS)
        os.close(self.master)

    def _read(self):
        content = b""
        while True:
            try:
                piece = os.read(self.master, 65536)
            except OSError:  # Linux: nobody has the terminal open any more
                piece = b""
            with self._changed:
                content += piece
                self.output = content.decode(errors="replace")
                self.plain = UNSEEN.sub("", re.sub(r"\x1b\[\d*m", "", self.output))
                self._changed.notify_all()
            if not piece:
                return

    def expect(self, text):
        """Waits until the text is on the screen, after what was expected before it."""
        end = time.monotonic() + SECONDS
        with self._changed:
            while (at := self.plain.find(text, self._read_to)) < 0:
                left = end - time.monotonic()
                if left < 0 or not self._reader.is_alive():
                    raise AssertionError(f"no {text!r} in {self.plain[self._read_to :]!r}")
                self._changed.wait(min(left, 0.5))
            seen = self.plain[self._read_to : at]
            self._read_to = at + len(text)
            return seen

    def type(self, keys):
        os.write(self.master, keys.encode())

    def press_ctrl_c(self):
        """Types it once the program waits for something.

        Python looks at a signal before it starts to wait, or while it does; between the two, the
        signal goes unnoticed until the next key. People do not type that fast.
        """
        status = Path(f"/proc/{self.process.pid}/stat")
        if status.exists():  # Linux
            wait_for(lambda: status.read_text().rpartition(")")[2].split()[0] == "S")
        self.type(CTRL_C)

    def enter(self, line, text=None):
        """Types a line, and waits for the text if there is one."""
        self.type(line + "\r")
        return self.expect(text) if text else None

    def resize(self, columns, rows=24):
        """Tells the terminal's size to the system, which tells the program with SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def status(self):
        """The exit status, once the program has ended and all its output is here."""
        status = self.process.wait()
        self._reader.join(SECONDS)
        return status


def wait_for(condition):
    """Waits until a condition that no output tells of holds."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
