"""The suite as pytest items: subclass `StoreContract`, name a factory, run pytest."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from .check import (
    DRIVER_LEVELS,
    LEVELS,
    Check,
    Level,
    NotApplicable,
    Storage,
    Survives,
    Terms,
    Violation,
)
from .plan import all_of
from .run import perform

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .factory import Factory

__all__ = ["DriverContract", "StoreContract"]


class _Contract:
    """What both contracts share: one pytest item for each check.

    Each item runs in an event loop of its own, in pytest's thread; no plugin is needed. What blocks
    that thread for ever is not interrupted: pytest-timeout does that, and so does the command.
    """

    factory: Any
    """``"package.module:factory"`` or the factory itself; see `toolnexus_stores_contract.factory`.
    Only a name can be opened by another process too, as some checks want it."""

    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Check id -> why that promise is broken on purpose. One that is kept all the same, or that is
    not run, is a failure: the list stays true."""

    left_out: ClassVar[Mapping[str, str]] = {}
    """Check id -> why no item is made of it."""

    survives: ClassVar[Survives] = "power"
    """What an acknowledged save survives: ``"power"``, the loss of it, or only the end of the
    ``"process"``."""

    exhaustive: ClassVar[bool] = False
    """Every byte and every state: for the night."""

    storage: ClassVar[Storage | None] = None
    """Where the store keeps its conversations, ``"files"`` or ``"server"``, if that is known before
    there is a factory: then no item is made of a check for the other kind. Without it such an item
    is skipped, with the reason."""

    _kind: ClassVar[str]
    _levels: ClassVar[Collection[Level]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Called by pytest: one item for each check."""
        if metafunc.function.__name__ == "test_contract":
            metafunc.parametrize("check", [self._item(check) for check in self._checks()])

    def test_contract(self, check: Check, request: pytest.FixtureRequest) -> None:
        """The promise of *check*, put to the test."""
        __tracebackhide__ = True
        terms = Terms(self.survives, self.exhaustive)
        try:
            counts = asyncio.run(perform(check, self._chosen_factory(), terms=terms))
            request.node.user_properties += counts.items()
        except NotApplicable as reason:
            pytest.skip(str(reason))

    def test_expected_failures_and_claims_are_known(self) -> None:
        """Expected failures are checks that run, claims levels, and what is left out is a check."""
        __tracebackhide__ = True
        absent = sorted(self.left_out.keys() - {check.id for check in all_of(self._kind)})
        if absent:
            pytest.fail(f"left_out: no such check: {', '.join(absent)}", pytrace=False)
        unknown = sorted({*self._claimed()} - {*self._levels})
        if unknown:
            pytest.fail(f"claims: no such level: {', '.join(unknown)}", pytrace=False)
        unused = sorted(self.expected_failures.keys() - {check.id for check in self._checks()})
        if unused:
            pytest.fail(f"expected_failures: not run here: {', '.join(unused)}", pytrace=False)

    def _claimed(self) -> Collection[Level]:
        return self._levels

    def _checks(self) -> list[Check]:
        claimed = self._claimed()
        return [
            check
            for check in all_of(self._kind)
            if check.level in claimed
            and check.id not in self.left_out
            and (not self.storage or check.storage in {None, self.storage})
        ]

    def _item(self, check: Check) -> object:
        reason = self.expected_failures.get(check.id)
        expected = pytest.mark.xfail(raises=Violation, reason=reason or "", strict=True)
        return pytest.param(check, id=check.id, marks=[] if reason is None else [expected])

    def _chosen_factory(self) -> Factory:
        """The factory; a plain function in the class body is no method of it."""
        __tracebackhide__ = True
        found = inspect.getattr_static(self, "factory", None)
        if found is None:
            pytest.fail(f"{type(self).__name__} names no factory", pytrace=False)
        if inspect.isfunction(found) and not inspect.signature(found).parameters:
            return cast("Factory", found)
        return cast("Factory", self.factory)


class StoreContract(_Contract):
    """One pytest item for each check of the levels that a store claims.

    ``factory`` is a name, a function without parameters, or a method of the subclass (which may use
    what a fixture put on ``self``). It may be called several times in one item, and opens the same
    storage each time; a check uses fresh ids, so storage may be shared.
    """

    claims: ClassVar[Collection[Level]] = ("core", "concurrent", "durable")
    """The levels that the store claims; ``core`` always. What is not claimed is not run."""

    _kind = "store"
    _levels = LEVELS

    def _claimed(self) -> Collection[Level]:
        return ("core", *self.claims)


class DriverContract(_Contract):
    """One pytest item for each promise of the driver protocol (`toolnexus_stores.driver`).

    ``factory`` makes a driver that is not open yet: a new object each time, over the same storage.
    A URL means the driver that `open_store` would use for it.
    """

    _kind = "driver"
    _levels = DRIVER_LEVELS
