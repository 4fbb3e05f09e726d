"""Cancel a coroutine at a chosen one of its suspensions.

Where timing cannot reach: a task may be cancelled at every ``await`` that really suspends it, and
between two of them nothing can.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

__all__ = ["CancelledAt"]

T = TypeVar("T")


@final
class CancelledAt(Generic[T]):
    """Awaited, it is *work*, in a task that is cancelled when it is suspended for the k-th time.

    Counting from 0; ``suspensions`` says how often it was suspended in all.
    """

    def __init__(self, work: Coroutine[Any, Any, T], number: int) -> None:
        self._work = work
        self._number = number
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, T]:
        """Pass everything through between the work and its task, and count."""
        step: Any = self._work.send
        value: object = None
        while True:
            try:
                waiting = step(value)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.suspensions == self._number:
                task = asyncio.current_task()
                if task is not None:
                    asyncio.get_running_loop().call_soon(task.cancel)
            self.suspensions += 1
            try:
                step, value = self._work.send, (yield waiting)
            except BaseException as error:
                step, value = self._work.throw, error
