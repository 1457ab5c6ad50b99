"""Ends a run from outside, and tells the model so.

Copy with: the core.

    agent.interrupt("Look at the tests first.")      # from any thread
"""

from contextlib import suppress

from ..loop import Loop
from ..transcript import Record, RunEnd

INTERRUPTED = "The user interrupted you here."


class Interruption(Loop):
    """Lets other code end the run in progress, so that it returns a Result."""

    _interruption = INTERRUPTED  # what the model reads

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
            if self.active_run is run and not run.interrupted:
                run.interrupted = True
                self._interruption = f"{INTERRUPTED} {note or ''}".strip()
                run.task.cancel()

        with suppress(RuntimeError):  # the event loop is closed
            run.task.get_loop().call_soon_threadsafe(cancel)

    def record(self, record: Record) -> None:
        if isinstance(record, RunEnd) and record.stop_reason == "interrupted":
            self.add_note(self._interruption)
        super().record(record)
