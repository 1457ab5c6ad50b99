"""Keeps the exact bodies of a model's requests and responses in a folder, for you to look into.

Copy with: nothing else.

    llm = ChatOpenAI("gpt-5-mini", dump=dump_to("bodies"))

The model has taken its key out of what it hands over.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

logger = logging.getLogger("agentloop")


def dump_to(folder: str | Path) -> Callable[[str, str], None]:
    """For the `dump=` of a model: writes each body into the folder, for the owner's eyes.

    They are 0001-request.json, 0001-response.json (.sse if it was a stream), and so on.
    """
    folder, lock = Path(folder), threading.Lock()

    def dump(request: str, response: str) -> None:
        kind = "json" if response.lstrip()[:1] in ("{", "[", "") else "sse"
        try:
            with lock:
                folder.mkdir(0o700, parents=True, exist_ok=True)
                numbers = [int(name[:4]) for name in os.listdir(folder) if name[:4].isdecimal()]
                start = f"{max(numbers, default=0) + 1:04}"
                for name, body in (("request.json", request), (f"response.{kind}", response)):
                    private = partial(os.open, mode=0o600)
                    with open(folder / f"{start}-{name}", "xb", opener=private) as file:
                        file.write(body.encode())
        except OSError as error:  # it is no reason to lose the answer
            logger.warning("the bodies of a request could not be written: %s", error)

    return dump
