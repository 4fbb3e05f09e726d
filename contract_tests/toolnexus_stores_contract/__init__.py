"""The contract suite: what a conversation store for `toolnexus` promises, as checks that can fail.

It needs nothing of the store but the runtime's two async methods, ``get(id)`` (or ``load``) and
``save(id, messages)``. Three front ends share one list of checks. A command::

    toolnexus-stores check my_package.stores:open_my_store

With pytest, one item for each check::

    from toolnexus_stores_contract import StoreContract

    class TestMyStore(StoreContract):
        factory = "my_package.stores:open_my_store"

In a program::

    report = await check_store("my_package.stores:open_my_store")

Authors of drivers have ``check --driver``, `DriverContract` and `check_driver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .check import DRIVER_LEVELS, LEVELS, Check, Level, NotApplicable, Violation
from .factory import NotAStore
from .plan import BadPlan, all_of
from .report import Outcome, Report
from .run import perform
from .suite import Progress, check_driver, check_store

if TYPE_CHECKING:
    from .front_pytest import DriverContract, StoreContract

__all__ = [
    "DRIVER_LEVELS",
    "LEVELS",
    "BadPlan",
    "Check",
    "DriverContract",
    "Level",
    "NotAStore",
    "NotApplicable",
    "Outcome",
    "Progress",
    "Report",
    "StoreContract",
    "Violation",
    "all_checks",
    "all_driver_checks",
    "check_driver",
    "check_store",
    "perform",
]


def all_checks() -> tuple[Check, ...]:
    """Every check of stores, level by level."""
    return all_of("store")


def all_driver_checks() -> tuple[Check, ...]:
    """Every check of drivers."""
    return all_of("driver")


def __getattr__(name: str) -> Any:
    """The classes for pytest are imported when they are asked for: the rest works without it."""
    if name in {"DriverContract", "StoreContract"}:
        from . import front_pytest  # noqa: PLC0415

        return getattr(front_pytest, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
