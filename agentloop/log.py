"""The log: an agent's records in order, the folds over them, and the replacement of history.

Copy with: history_change.py and its imports.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from threading import RLock
from typing import Any, NoReturn, Protocol, TypeVar, cast, overload
from weakref import ref

from .history_change import adapt_history
from .messages import Record, Reset
from .transcript import Fold

AnyFold = TypeVar("AnyFold", bound=Fold)


class LogOwner(Protocol):
    """The agent that a log belongs to."""

    def save_history(self, records: Sequence[Record]) -> None:
        """Save records before they replace the log. Raises AgentBusy during a run."""


class Log(Sequence[Record]):
    """The records of an agent, as a sequence. `Loop.record` appends records. Thread-safe.

    Existing history changes only by `replace`, by `rewind`, and by appending a Reset.

    lock: held while appending a record, updating a fold, or replacing the history.
    """

    __slots__ = ("_folds", "_owner", "_records", "lock")

    def __init__(self, owner: LogOwner, records: Iterable[Record] = ()) -> None:
        self.lock = RLock()
        # a weak reference, because a reference cycle would delay garbage collection of an agent
        self._owner = ref(owner)
        self._records = [*records]
        self._folds: dict[object, Fold] = {}

    def append(self, record: Record) -> None:
        """Append a record. A Reset starts a new history. Applications call `agent.record`."""
        with self.lock:
            if isinstance(record, Reset):
                self._records, self._folds = [], {}
            self._records.append(record)

    def replace(self, records: Iterable[Record]) -> None:
        """Replace the history, for example to delete a record:

            agent.log.replace(record for record in agent.log if record is not secret)

        A Session replaces its file atomically before the log changes. Log entries that refer to
        deleted records are adapted or deleted (see `Mark.after_change`). An executed or denied call
        never becomes executable again, regardless of the deleted records. The text of a Summary is
        unchanged: replace a Summary whose text repeats a deleted record. Records that another
        thread appends after the computation of `records` are lost.

        Raises AgentBusy during a run, TypeError for an invalid record, and OSError without any
        change if the session cannot be written.
        """
        with self.lock:
            new = [*records]
            for record in new:
                if not isinstance(cast(object, record), Record):
                    raise TypeError(f"a log holds messages and log entries, not {record!r:.80}")
            if self._records:
                new = adapt_history(self._records, new)
            if owner := self._owner():
                owner.save_history(new)
            self._records, self._folds = new, {}

    def rewind(self, length: int) -> None:
        """Drop the records starting at index `length`, before repeating an attempt at the same run.

        The session file keeps the dropped records. Loading the session omits them only if the next
        attempt starts with a RunStart of the same `workflow_run`, as `Durable` records it.
        """
        with self.lock:
            if length < len(self._records):
                self._records, self._folds = self._records[:length], {}

    def fold(self, kind: Callable[..., AnyFold], *settings: Hashable) -> AnyFold:
        """Return the fold `kind(records, *settings)`, updated with all records.

        Folds are cached, so that a call only processes new records. An exception during `catch_up`,
        including KeyboardInterrupt, discards the fold: the next call restarts with the first
        record. Raises TypeError unless `kind` is a class, because the cache would retain lambdas.
        """
        if not isinstance(kind, type):
            raise TypeError(f"fold() takes a subclass of Fold and its settings, not {kind!r:.80}")
        with self.lock:
            fold = self._folds.pop((kind, settings), None)
            if fold is None:
                fold = kind(self._records, *settings)
            fold.catch_up()
            self._folds[kind, settings] = fold
        return cast(AnyFold, fold)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: Any) -> Any:
        return cast(Any, self._records[index])

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._records == [*cast(Sequence[object], other)]

    def __iadd__(self, records: object) -> NoReturn:
        raise TypeError("agent.log += is not supported: use agent.log.replace([*agent.log, ...])")

    def __repr__(self) -> str:
        return f"Log({self._records!r})"
