"""S3: conditions, lost answers, refusals, listing, and endpoints that are not AWS."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from toolnexus_stores import CorruptRecord, InvalidURL, Store, Unavailable, open_store
from toolnexus_stores.keys import Keys

from tests.servers import Fault, StrictS3

from .talk import converse_while, turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import S3Server

    Opened = Callable[..., Store]


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("s3://", "bucket is missing"),
        ("s3://key:secret@bucket", "takes no credentials"),
        ("s3://bucket?endpoint_url=http://key:secret@h", "endpoint_url"),
        ("s3://bucket?sse=rot13", "sse"),
        ("s3://bucket?addressing_style=paths", "addressing_style"),
        ("s3://bucket?endpoint=http://h", "did you mean endpoint_url"),
        ("s3://bucket?secret_key=x", "unknown option"),
    ],
)
def test_what_a_url_cannot_say(url: str, complaint: str) -> None:
    with pytest.raises(InvalidURL, match=complaint) as caught:
        open_store(url)
    assert "secret@" not in str(caught.value)


def puts(server: StrictS3) -> list[Any]:
    return [each for each in server.requests if each.method == "PUT" and ".cond" not in each.key]


async def test_a_save_is_one_put_and_an_unchanged_get_is_one_head(
    strict_s3: StrictS3, opened: Opened
) -> None:
    store = opened(strict_s3.url)
    await store.save("a", turns(10))
    strict_s3.forget_requests()
    assert await store.get("a") == turns(10)
    assert [each.method for each in strict_s3.requests] == ["HEAD"]
    strict_s3.forget_requests()
    await store.save("a", turns(12))
    (put,) = strict_s3.requests
    assert put.method == "PUT"
    assert put.headers["content-length"] == str(len(put.body))
    assert "if-match" in put.headers
    assert not [name for name in put.headers if "trailer" in name or "chunked" in name]


async def test_what_is_stored_is_lines_that_anyone_can_read(
    strict_s3: StrictS3, opened: Opened
) -> None:
    await opened(strict_s3.url).save("a", turns(5))
    (key,) = (key for key in strict_s3.bodies if ".cond" not in key)
    assert key.startswith("tests/t/a-")
    head, *lines = gzip.decompress(strict_s3.bodies[key]).splitlines()
    assert json.loads(head)["meta"]["id"] == "a"
    assert [json.loads(line) for line in lines] == turns(5)


@pytest.mark.parametrize("id", ["a", "x" * 9_000])
async def test_a_first_store_of_another_process_reads_heads_of_any_length(
    strict_s3: StrictS3, opened: Opened, id: str
) -> None:
    await opened(strict_s3.url).save(id, turns(5))
    other = opened(strict_s3.url)
    assert [each async for each in other.ids()] == [id]
    assert await other.get(id) == turns(5)
    assert await other.get(id) == turns(5)


LOST = [
    Fault(drop=True, applied=True, method="PUT", key="*jsonl*"),
    Fault(status=500, applied=True, method="PUT", key="*jsonl*"),
]


@pytest.mark.parametrize("fault", LOST)
async def test_our_own_save_is_known_again_when_its_answer_was_lost(
    strict_s3: StrictS3, opened: Opened, fault: Fault
) -> None:
    store = opened(strict_s3.url)
    for messages in (turns(3), turns(5)):
        strict_s3.heal()
        strict_s3.fail(fault)
        strict_s3.forget_requests()
        await store.save("a", messages)
        assert await opened(strict_s3.url).get("a") == messages
        assert len(puts(strict_s3)) == 2  # the second is refused: 412


FLEETING = [
    Fault(status=503, times=2),
    Fault(status=500, times=2),
    Fault(status=409, times=2, method="PUT"),
    Fault(drop=True, times=2),
    Fault(cut=True, times=2, method="GET"),
]


@pytest.mark.parametrize("fault", FLEETING)
async def test_what_passes_is_waited_out(strict_s3: StrictS3, opened: Opened, fault: Fault) -> None:
    store = opened(strict_s3.url)
    await store.save("a", turns(3))
    strict_s3.fail(fault)
    await store.save("a", turns(5))
    strict_s3.heal()
    strict_s3.fail(fault)
    assert await opened(strict_s3.url).get("a") == turns(5)


async def test_what_does_not_pass_ends_in_time(strict_s3: StrictS3, opened: Opened) -> None:
    store = opened(strict_s3.url, timeout=2)
    await store.save("a", turns(3))
    strict_s3.fail(Fault(status=503, times=10_000))
    with pytest.raises(Unavailable, match=r"within 2 s: the service asks to slow down"):
        await store.save("a", turns(5))
    strict_s3.heal()
    assert await store.get("a") == turns(3)


async def test_a_black_hole_ends_in_time(strict_s3: StrictS3, opened: Opened) -> None:
    store = opened(strict_s3.url, timeout=2)
    await store.save("a", turns(3))
    strict_s3.fail(Fault(delay=5, method="PUT", applied=True))
    with pytest.raises(Unavailable, match=r"within 2 s") as caught:
        await store.save("a", turns(5))
    assert caught.value.ambiguous
    await opened(strict_s3.url).save("a", turns(6))
    await asyncio.sleep(4)
    assert await opened(strict_s3.url).get("a") == turns(6)  # the late one was fenced


async def test_denial_is_not_absence(strict_s3: StrictS3, opened: Opened) -> None:
    store = opened(strict_s3.url)
    await store.save("a", turns(3))
    for method in ("HEAD", "GET"):
        strict_s3.fail(Fault(status=403, times=10_000, method=method))
    for id in ("a", "never saved"):
        with pytest.raises(Unavailable, match="access is denied"):
            await opened(strict_s3.url).get(id)


async def test_a_bucket_that_is_not_there_or_not_ours(strict_s3: StrictS3, opened: Opened) -> None:
    elsewhere = strict_s3.url.replace("s3://strict", "s3://nowhere")
    with pytest.raises(Unavailable, match="bucket does not exist"):
        await opened(elsewhere).save("a", turns(1))
    denied = strict_s3.url.replace("s3://strict", "s3://denied")
    with pytest.raises(Unavailable, match="access is denied"):
        await opened(denied).get("a")


@pytest.mark.parametrize("kind", ["ignore", "refuse"])
async def test_an_endpoint_without_conditional_writes_is_named(
    strict_s3: StrictS3, opened: Opened, kind: Any
) -> None:
    strict_s3.conditional = kind
    with pytest.raises(Unavailable, match=r"conditional=off"):
        await opened(strict_s3.url).save("a", turns(1))
    store = opened(strict_s3.url, conditional="off")
    await store.save("a", turns(2))
    await store.save("a", turns(3))
    assert await opened(strict_s3.url, conditional="off").get("a") == turns(3)
    assert not [each for each in puts(strict_s3) if "if-match" in each.headers]


async def test_the_keys_are_wrong(
    strict_s3: StrictS3, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    with pytest.raises(Unavailable, match=r"denied|refused"):
        await opened(strict_s3.url).get("a")


async def test_no_keys_at_all(
    strict_s3: StrictS3, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(Unavailable, match="no AWS credentials"):
        await opened(strict_s3.url).get("a")


async def test_a_server_that_is_not_there(strict_s3: StrictS3, opened: Opened) -> None:
    store = opened("s3://bucket?endpoint_url=http://127.0.0.1:1", timeout=2)
    with pytest.raises(Unavailable, match=r"within 2 s: the endpoint could not be reached"):
        await store.save("a", turns(1))


@pytest.mark.parametrize("size", [0, 1, 40, -1])
async def test_a_damaged_object_is_corrupt_and_stays(
    strict_s3: StrictS3, opened: Opened, size: int
) -> None:
    await opened(strict_s3.url).save("a", turns(30))
    (key,) = (key for key in strict_s3.bodies if ".cond" not in key)
    strict_s3.plant(key, strict_s3.bodies[key][:size])
    store = opened(strict_s3.url)
    for use in (store.get("a"), store.save("a", turns(2))):
        with pytest.raises(CorruptRecord) as caught:
            await use
        assert key in caught.value.where
    assert await store.delete("a")
    assert await store.get("a") is None


async def test_encryption_is_asked_for(strict_s3: StrictS3, opened: Opened) -> None:
    await opened(strict_s3.url, sse="AES256").save("a", turns(1))
    assert puts(strict_s3)[-1].headers["x-amz-server-side-encryption"] == "AES256"


async def test_every_one_of_2402_conversations_is_listed(
    strict_s3: StrictS3, opened: Opened
) -> None:
    store = opened(strict_s3.url)
    await store.save("0", turns(1))
    (key,) = (key for key in strict_s3.bodies if ".cond" not in key)
    for n in range(1, 2_402):
        body = gzip.decompress(strict_s3.bodies[key]).replace(b'"id":"0"', b'"id":"%d"' % n)
        strict_s3.plant(f"tests/{Keys().transcript(str(n))}.jsonl.gz", gzip.compress(body, 1))
    assert sorted([int(id) async for id in store.ids()]) == list(range(2_402))


async def test_a_real_server_that_restarts_is_survived(fresh_s3: S3Server, opened: Opened) -> None:
    store = opened(fresh_s3.url)
    count = await converse_while(store, fresh_s3.restart)
    assert await opened(fresh_s3.url).get("talk") == turns(count)


async def test_one_of_many_writers_wins_each_round(s3: S3Server, opened: Opened) -> None:
    url = s3.fresh_url()
    stores = [opened(url) for _ in range(6)]
    for _ in range(5):
        written = [[{"by": n, "of": m} for m in range(n + 1)] for n in range(6)]
        await asyncio.gather(
            *(store.save("a", messages) for store, messages in zip(stores, written, strict=True))
        )
        found = [await store.get("a") for store in stores]
        assert found == [found[0]] * 6
        assert found[0] in written


def test_boto3_is_the_one_that_knows_conditions() -> None:
    """The floor in pyproject.toml is the first release with the parameters that we send."""
    shapes = boto3.client("s3", region_name="us-east-1").meta.service_model
    shape = shapes.operation_model("PutObject").input_shape
    assert shape is not None
    assert {"IfMatch", "IfNoneMatch"} <= set(shape.members)
