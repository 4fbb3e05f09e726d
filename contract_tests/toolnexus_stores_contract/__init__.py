"""The contract suite: what a conversation store for `toolnexus` promises, as checks that can fail.

It needs nothing of the store but the runtime's two async methods, ``get(id)`` (or ``load``) and
``save(id, messages)``. With pytest, one item for each check::

    from toolnexus_stores_contract import StoreContract

    class TestMyStore(StoreContract):
        factory = "my_package.stores:open_my_store"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .check import LEVELS, Check, Level, NotApplicable, Violation
from .factory import NotAStore
from .run import perform

if TYPE_CHECKING:
    from .front_pytest import StoreContract

__all__ = [
    "LEVELS",
    "Check",
    "Level",
    "NotAStore",
    "NotApplicable",
    "StoreContract",
    "Violation",
    "all_checks",
    "perform",
]


def all_checks() -> tuple[Check, ...]:
    """Every check of the suite, level by level."""
    from .checks import CHECKS  # noqa: PLC0415 - pytest must get to rewrite them first

    return CHECKS


def __getattr__(name: str) -> Any:
    """`StoreContract` is imported when it is asked for: the rest works without pytest."""
    if name == "StoreContract":
        from .front_pytest import StoreContract  # noqa: PLC0415

        return StoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
