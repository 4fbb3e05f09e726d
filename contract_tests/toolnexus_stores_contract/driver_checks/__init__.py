"""The list of the checks of drivers: one module for each kind of promise.

A new check is an async function under `driver_subject.check` in one of these modules; nothing else
has to know of it.
"""

from __future__ import annotations

from toolnexus_stores_contract.check import Check

from . import at_once, errors, listing, places, records, versions

__all__ = ["CHECKS"]

CHECKS: tuple[Check, ...] = tuple(
    value
    for module in (records, versions, listing, at_once, places, errors)
    for value in vars(module).values()
    if isinstance(value, Check)
)
"""Every check."""
