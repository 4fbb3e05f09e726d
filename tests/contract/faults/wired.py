"""Stores on Redis for the wire: ones that fall into a trap each.

A factory of each is named ``tests.contract.faults.wired:<name>('redis://…')``.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redis.asyncio as client
from redis.exceptions import RedisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stores import Message

CAUGHT_ON_THE_WIRE: dict[type, tuple[str, ...]] = {}
"""Each trap, and the checks that must find it."""


def caught_by(*checks: str) -> Callable[[type], type]:
    def noted(store: type) -> type:
        CAUGHT_ON_THE_WIRE[store] = checks
        return store

    return noted


class OneText:
    """A text per conversation, replaced by one command; nothing fences a save that comes late."""

    def __init__(self, url: str) -> None:
        self.redis = client.Redis.from_url(url.partition("?")[0])

    def key(self, id: str) -> str:
        return f"wired:{hashlib.sha256(id.encode()).hexdigest()}"

    async def get(self, id: str) -> list[Message] | None:
        text = await self.redis.get(self.key(id))
        return None if text is None else json.loads(text)

    async def save(self, id: str, messages: list[Message]) -> None:
        await self.redis.set(self.key(id), json.dumps(messages))

    async def close(self) -> None:
        await self.redis.aclose()


@caught_by("atomic.delivered_late")
class NotFenced(OneText):
    """An abandoned save replaces a later one when it arrives."""


@caught_by("atomic.cut_in_save")
class InPieces(OneText):
    """A list, one command for each message, in a pipeline without MULTI."""

    async def get(self, id: str) -> list[Message] | None:
        texts: list[Any] = await self.redis.lrange(self.key(id), 0, -1)
        return [json.loads(text) for text in texts] or None

    async def save(self, id: str, messages: list[Message]) -> None:
        pipeline = self.redis.pipeline(transaction=False)
        pipeline.delete(self.key(id))
        for message in messages:
            pipeline.rpush(self.key(id), json.dumps(message))
        await pipeline.execute()


@caught_by("atomic.cut_in_get")
class AbsentIfUnread(OneText):
    """What could not be read is taken for what is not there."""

    def __init__(self, url: str) -> None:
        self.redis = client.Redis.from_url(url.partition("?")[0], retry=None)

    async def get(self, id: str) -> list[Message] | None:
        with suppress(RedisError, OSError):
            return await super().get(id)
        return None
