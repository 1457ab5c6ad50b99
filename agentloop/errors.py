"""What can go wrong, in one small hierarchy.

Copy with: messages.py.
"""

from collections.abc import Callable
from contextvars import ContextVar

from .messages import Result, SideRequest, Stop, TaskComplete


class AgentBusy(RuntimeError):
    """One agent runs one query at a time; `fork()` gives an independent copy."""


class RunStopped(Exception):
    """A run ended without an answer: `result` says how, and has the text that there is."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def __str__(self) -> str:
        return f"{self.result.stop_reason}: {self.result.text}"


class SessionLocked(RuntimeError):
    """A session is open in one agent at a time; `fork(session="other")` makes a copy of it."""


class ToolError(Exception):
    """An expected failure of a tool: the model reads the message, and nothing else of it."""


class ModelError(Exception):
    """A model request failed.

    `status` is the HTTP status (None if there was no answer), `request_id` the provider's own,
    `retry_after` the seconds that the provider asks to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.request_id, self.retry_after = status, request_id, retry_after


class ConnectionFailed(ModelError):
    """No answer, or only part of one: refused, reset, timed out, cut off."""


class RateLimited(ModelError):
    """429: too many requests or tokens."""


class Overloaded(ModelError):
    """529 or 503: the provider has no capacity at the moment."""


class ServerError(ModelError):
    """Any other 5xx."""


class BadRequest(ModelError):
    """The provider refuses the request itself: trying again would not help."""


class ContextWindowExceeded(BadRequest):
    """The request is longer than the model's context window."""


class ContentRefused(BadRequest):
    """The provider's content filter refuses the request."""


class AuthenticationFailed(ModelError):
    """401 or 403: the key is missing, wrong, or not allowed to do this."""


class BadResponse(ModelError):
    """The answer is not what the provider's API promises (HTML, truncated JSON, ...)."""


def precedence(error: BaseException) -> int:
    """Return which of several exceptions ends a run: an error, a Stop, then a TaskComplete."""
    if isinstance(error, TaskComplete):
        return 2
    if isinstance(error, Stop):
        return 1
    return 0


report_failed_attempt = ContextVar[Callable[[SideRequest], None]](
    "failed_attempt", default=lambda _: None
)
"""A model tells this of an attempt that failed and may have to be paid for; the loop records it."""
