"""Exceptions of the library.

Copy with: messages.py and its imports.
"""

from .messages import Attempt, Result, Stop, TaskComplete


class AgentBusy(RuntimeError):
    """An agent runs one query at a time; `fork()` returns an independent copy."""


class RunStopped(Exception):
    """A run ended without an answer. `result` has the stop reason and any text."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def __str__(self) -> str:
        return f"{self.result.stop_reason}: {self.result.text}"


class SessionLocked(RuntimeError):
    """A session may be open in one agent at a time; `fork(session="other")` copies it."""


class ToolError(Exception):
    """An expected failure of a tool. Only the message is returned to the model."""


class ModelError(Exception):
    """A model request failed.

    status: the HTTP status; None if there was no response.
    request_id: the provider's id of the request.
    retry_after: seconds to wait, if the provider says so.
    should_retry: whether the provider advises a retry; None if it doesn't say.
    attempts: the failed attempts at this request that may be billed, this one included. The loop
        records them.
    """

    attempts: tuple[Attempt, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.request_id, self.retry_after = status, request_id, retry_after
        self.should_retry = should_retry


class ConnectionFailed(ModelError):
    """The connection was refused, reset, timed out, or ended during the response."""


class RateLimited(ModelError):
    """429: too many requests or tokens."""


class Overloaded(ModelError):
    """529 or 503: the provider lacks capacity at the moment."""


class ServerError(ModelError):
    """Another 5xx status."""


class BadRequest(ModelError):
    """The provider rejects the request; a retry would fail again."""


class ContextWindowExceeded(BadRequest):
    """The request is longer than the model's context window."""


class ContentRefused(BadRequest):
    """The provider's content filter rejects the request."""


class AuthenticationFailed(ModelError):
    """401 or 403: the key is missing, invalid, or lacks permission."""


class BadResponse(ModelError):
    """The response violates the provider's API (HTML, truncated JSON, ...)."""


def precedence(error: BaseException) -> int:
    """Return the rank of an exception: errors take precedence over a Stop or a TaskComplete."""
    if isinstance(error, TaskComplete):
        return 2
    if isinstance(error, Stop):
        return 1
    return 0


def attempts_of(error: BaseException) -> tuple[Attempt, ...]:
    """The failed attempts that an exception carries: of a ModelError, or of a cancelled request."""
    attempts: tuple[Attempt, ...] = getattr(error, "attempts", ())
    return attempts
