"""A pytest plugin: wherever the runtime would make its own store, it gets a SQLite store of ours.

Loaded with ``-p swap_store`` into the runtime's own test suite. Every instance is a fresh database
in the directory that ``SWAP_STORE_DIR`` names; the files in it tell how many were really used.
"""

from __future__ import annotations

import itertools
import os

import toolnexus
import toolnexus.agents.runtime
import toolnexus.client
from toolnexus_stores import Store, open_store

_numbers = itertools.count(1)


def fresh_store() -> Store:
    """What the runtime gets instead of an ``InMemoryConversationStore``."""
    return open_store(f"sqlite:///{os.environ['SWAP_STORE_DIR']}/{next(_numbers)}.db")


_DEFAULT = "InMemoryConversationStore"
for module in (toolnexus, toolnexus.client, toolnexus.agents.runtime):
    assert hasattr(module, _DEFAULT)
    setattr(module, _DEFAULT, fresh_store)
