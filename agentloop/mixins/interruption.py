"""Ends a run from outside with a Result, and tells the model.

Copy with: the core.

    agent.interrupt("Look at the tests first.")      # from any thread
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar, cast

from ..loop import Loop
from ..messages import AssistantMessage, Message, Result, Stop, ToolCall
from ..model import Request
from ..stream import Run

StepResult = TypeVar("StepResult")

INTERRUPTED = "The user interrupted you here."


class Interruption(Loop):
    """Lets other code end the run in progress, which returns a Result."""

    # the run, and the note for the model; not annotated, so that a fork stays small
    _interrupted = cast("tuple[Run, str] | None", None)

    def interrupt(self, note: str | None = None) -> None:
        """End the run in progress: its Result has the stop_reason "interrupted". Thread-safe.

        The model reads that it was interrupted, and your note. Calls that haven't started don't
        start: the next prompt closes them, and `run()` without a prompt runs them. Between runs,
        or if the run ends before its next await, this has no effect.
        """
        run = self.active_run
        if run is None:
            return
        run.stopping = True

        def cancel() -> None:
            if self.active_run is run and not self._is_interrupted(run):
                self._interrupted = run, f"{INTERRUPTED} {note or ''}".strip()
                run.task.cancel()

        with suppress(RuntimeError):  # the event loop is closed
            run.task.get_loop().call_soon_threadsafe(cancel)

    async def context(self) -> list[Message]:
        return await self._until_interrupted(super().context())

    async def call_model(self, request: Request) -> AssistantMessage:
        return await self._until_interrupted(super().call_model(request))

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        return await self._until_interrupted(super().call_tools(calls))

    async def finish(self, result: Result) -> Result | None:
        return await self._until_interrupted(super().finish(result))

    def _is_interrupted(self, run: Run) -> bool:
        return bool(self._interrupted and self._interrupted[0] is run)

    async def _until_interrupted(self, work: Awaitable[StepResult]) -> StepResult:
        """Await a step of the run. Raises Stop if `interrupt` has ended it.

        The step raises CancelledError then, or what a model raised in response.
        """
        run = self.active_run
        try:
            return await work
        except (Exception, asyncio.CancelledError):
            if not run or not self._is_interrupted(run) or asyncio.current_task() is not run.task:
                raise
            _, note = self._interrupted or (run, "")
            run.task.uncancel()
            if run.is_cancelled:  # by somebody else, too
                raise
            self._interrupted = None
            self.add_note(note)
            raise Stop("interrupted") from None
