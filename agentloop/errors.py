"""Exceptions of the library.

Copy with: messages.py and its imports.
"""

from collections.abc import Iterable

from .messages import Attempt, Result, Stop, TaskComplete

BUSY = (
    "this agent is running a query: await the query (or close its stream) first, or use a separate "
    "copy for every query: agent.fork()"
)


class AgentBusy(RuntimeError):
    """An agent runs one query at a time; `fork()` returns an independent copy."""

    def __init__(self, text: str = BUSY) -> None:
        super().__init__(text)


class RunStopped(Exception):
    """`query` raises this if the run ended without an answer. `result` says how it ended."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def __str__(self) -> str:
        return f"{self.result.stop_reason}: {self.result.text}"


class SessionLocked(RuntimeError):
    """A session may be open in one agent at a time; `fork(session="other")` copies it."""


class ToolError(Exception):
    """A failure that a tool expects. The model reads the text, and nothing is logged."""


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
    """The connection was refused or reset, timed out, or ended during the response."""


class RateLimited(ModelError):
    """429: too many requests or tokens."""


class Overloaded(ModelError):
    """529, 503 or 409: the provider has no capacity at the moment."""


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
    """The response isn't what the provider's API promises: HTML, cut-off JSON, ..."""


def result_of_calls(outcomes: Iterable[BaseException | None]) -> Result | None:
    """Raise an error or a Stop among the outcomes of calls, or return a TaskComplete's Result.

    An error comes before a Stop, a Stop before a TaskComplete, and the first call's among equals.
    """
    raised = [error for error in outcomes if error]
    if not raised:
        return None
    first = min(raised, key=lambda each: (isinstance(each, Stop), isinstance(each, TaskComplete)))
    if isinstance(first, TaskComplete):
        return first.result
    raise first


def attempts_of(outcome: object) -> tuple[Attempt, ...]:
    """The failed attempts that a reply, a ModelError or a cancelled request carries."""
    attempts: tuple[Attempt, ...] = getattr(outcome, "attempts", ())
    return attempts
