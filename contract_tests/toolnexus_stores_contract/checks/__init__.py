"""The list of checks: one module for each kind of promise.

A new check is an async function under the `check` decorator in one of these modules; nothing else
has to know of it.
"""

from __future__ import annotations

from toolnexus_stores_contract.check import LEVELS, Check

from . import (
    absence,
    cancellation,
    concurrency,
    copies,
    crashes,
    durability,
    fidelity,
    ids,
    lifecycle,
    management,
    refusals,
    replacement,
    sequences,
    snapshots,
    wires,
)

__all__ = ["CHECKS"]

_MODULES = (
    absence,
    replacement,
    copies,
    fidelity,
    refusals,
    ids,
    sequences,
    lifecycle,
    concurrency,
    cancellation,
    durability,
    crashes,
    wires,
    snapshots,
    management,
)

CHECKS: tuple[Check, ...] = tuple(
    value
    for level in LEVELS
    for module in _MODULES
    for value in vars(module).values()
    if isinstance(value, Check) and value.level == level
)
"""Every check, level by level."""
