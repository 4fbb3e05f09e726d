"""Stores on servers, for the wire: ones that fall into a trap each.

A factory of each is named ``tests.contract.faults.wired:<name>('redis://…')``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import boto3
import redis.asyncio as client
from botocore.config import Config
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


def name_of(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()


class OneText:
    """A text per conversation, replaced by one command; nothing fences a save that comes late."""

    server: ClassVar[str] = "redis"

    def __init__(self, url: str) -> None:
        self.redis = client.Redis.from_url(url.partition("?")[0])

    def key(self, id: str) -> str:
        return f"wired:{name_of(id)}"

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


@caught_by("atomic.cut_in_save")
class DeletesThenInserts:
    """Rows, the old ones deleted and the new ones inserted by statements that commit each alone."""

    server: ClassVar[str] = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0]
        self.pool: asyncpg.Pool | None = None

    async def opened(self) -> asyncpg.Pool:
        if self.pool is None:
            self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
            await self.pool.execute(
                "CREATE TABLE IF NOT EXISTS wired (name text, place int, message text)"
            )
        return self.pool

    async def get(self, id: str) -> list[Message] | None:
        rows = await (await self.opened()).fetch(
            "SELECT message FROM wired WHERE name = $1 ORDER BY place", name_of(id)
        )
        return [json.loads(row["message"]) for row in rows] or None

    async def save(self, id: str, messages: list[Message]) -> None:
        async with (await self.opened()).acquire() as connection:
            await connection.execute("DELETE FROM wired WHERE name = $1", name_of(id))
            for place, message in enumerate(messages):
                await connection.execute(
                    "INSERT INTO wired VALUES ($1, $2, $3)",
                    *(name_of(id), place, json.dumps(message)),
                )

    async def close(self) -> None:
        if self.pool is not None:
            self.pool.terminate()


@caught_by("atomic.cut_in_save")
class ObjectPerMessage:
    """An object for each message, put one after the other; those that are too many are deleted."""

    server: ClassVar[str] = "s3"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.bucket = parts.netloc
        options = dict(parse_qsl(parts.query))
        self.s3 = boto3.client(
            "s3",
            endpoint_url=options["endpoint_url"],
            region_name=options.get("region", "us-east-1"),
            config=Config(
                retries={"total_max_attempts": 1},
                s3={"addressing_style": "path"},
                connect_timeout=5,
                read_timeout=5,
            ),
        )

    def keys(self, id: str) -> list[str]:
        found = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=f"wired/{name_of(id)}/")
        return [each.get("Key", "") for each in found.get("Contents", ())]

    def read(self, id: str) -> list[Message] | None:
        bodies = [self.s3.get_object(Bucket=self.bucket, Key=key)["Body"] for key in self.keys(id)]
        return [json.loads(body.read()) for body in bodies] or None

    def write(self, id: str, messages: list[Message]) -> None:
        keys = [f"wired/{name_of(id)}/{place:06}" for place in range(len(messages))]
        for key, message in zip(keys, messages, strict=True):
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=json.dumps(message).encode())
        for key in sorted({*self.keys(id)} - {*keys}):
            self.s3.delete_object(Bucket=self.bucket, Key=key)

    async def get(self, id: str) -> list[Message] | None:
        return await asyncio.to_thread(self.read, id)

    async def save(self, id: str, messages: list[Message]) -> None:
        await asyncio.to_thread(self.write, id, messages)

    async def close(self) -> None:
        self.s3.close()
