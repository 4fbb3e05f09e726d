"""Ids are hostile: a remote peer chooses them. Every string is its own conversation."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from toolnexus_stores_contract.check import check
from toolnexus_stores_contract.values import require_same, shown, transcript

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolnexus_stores_contract.subject import Subject

_WORD = "Straße-ﬁn-Å-é"


async def _all_distinct(subject: Subject, shapes: Iterable[str]) -> None:
    store = await subject.open()
    base = subject.new_id()
    ids = [shape.replace("{}", base) for shape in shapes]
    for id in ids:
        require_same(await store.get(id), None, f"get of {shown(id)}, never saved,")
    for number, id in enumerate(ids):
        await store.save(id, transcript(f"{number}", 1 + number % 3))
    for number, id in enumerate(ids):
        require_same(await store.get(id), transcript(f"{number}", 1 + number % 3), shown(id))


@check("core", "Ids that differ in a separator are different conversations.")
async def separators(subject: Subject) -> None:
    between = ["/", "_", ":", "%2F", "%2f", "\\", "-", ".", " ", "", "//", "|", "#", "?", "&", "+"]
    await _all_distinct(subject, [f"{{}}a{each}b" for each in between])


@check("core", "An id that looks like a path is an id.")
async def paths(subject: Subject) -> None:
    await _all_distinct(
        subject,
        [
            *("{}", "/{}", "./{}", "../{}", "../../{}", "{}/", "{}/.", "{}/..", "/etc/{}", "~/{}"),
            *("{}/../x", "{}/x", "C:\\{}", "\\\\host\\{}", "file:///{}", "{}.json", "{}.db"),
            *("%2e%2e%2f{}", "..%c0%af{}", "{}/./x", "root/{}.1", "root/{}.1/helper.1"),
        ],
    )


@check("core", "Ids that differ in case are different conversations.")
async def letter_case(subject: Subject) -> None:
    turkish = ["{}-I", "{}-i", "{}-\u0130", "{}-\u0131"]
    await _all_distinct(subject, ["{}-chat", "{}-Chat", "{}-CHAT", *turkish])


@check("core", "Ids that look alike in Unicode are different conversations.")
async def unicode_forms(subject: Subject) -> None:
    forms = {unicodedata.normalize(form, _WORD) for form in ("NFC", "NFD", "NFKC", "NFKD")}
    others = ["мой-проект", "проект-мой", "ひらがな", "ひらかな", "\u200b", "\ufeff", "\U0001f436"]
    lookalikes = [*sorted(forms), *others, "\u0430", "a"]
    await _all_distinct(subject, [f"{{}}{each}" for each in lookalikes])


@check("core", "Ids with NUL, newlines or half a character are ids.")
async def control_characters_in_ids(subject: Subject) -> None:
    await _all_distinct(
        subject,
        [
            *("{}", "{}\x00", "{}\x00a", "\x00{}", "{}\n", "{}\r\n", "\n{}", "{}\t", "{}\x1b[31m"),
            *("{}\ud83c", "{}\udc00", "{}\x7f", "{}\u2028"),
        ],
    )


@check("core", "Spaces and dots at the ends of an id count.")
async def ends(subject: Subject) -> None:
    await _all_distinct(
        subject, ["{}", "{} ", " {}", "{}.", ".{}", "{}..", "{}  ", "\u00a0{}", "{}\u3000"]
    )


@check("core", "Names that systems reserve, and wildcards, are ids.")
async def reserved_names(subject: Subject) -> None:
    await _all_distinct(
        subject,
        [
            *("CON{}", "nul.{}", ".git{}", "index-{}", "meta-{}", "{}.lock", "{}.tmp", "{}.jsonl"),
            *("{}*", "*{}", "{}%", "%{}", "{}_", "_{}", "{}?", "[a]{}", "{}'", '{}"', "{};--"),
            *("${}", "{{{}}}", "<{}>", "{}:0", "__{}__", "-{}", "{}=1", "{}@h"),
        ],
    )


@check("core", "An id that another one begins with is another conversation.")
async def prefixes(subject: Subject) -> None:
    await _all_distinct(subject, ["{}", *(f"{{}}{'x' * n}" for n in (1, 2, 3, 30, 300))])


@check("core", "Ids may be long, and differ only at their very end.")
async def long_ids(subject: Subject) -> None:
    lengths = (200, 255, 1_000, 2_200, 2_700, 9_000)
    await _all_distinct(subject, [f"{{}}{'x' * n}{end}" for n in lengths for end in ("a", "b")])


@check("core", "Something that is not a string is refused, or at least no string's conversation.")
async def ids_of_other_types(subject: Subject) -> None:
    store = await subject.open()
    twins: list[tuple[Any, str]] = [(7, "7"), (None, "None"), (("a",), "('a',)"), (b"a", "b'a'")]
    for odd, twin in twins:
        before = await store.get(twin)
        try:
            await store.raw.save(odd, transcript("odd", 1))
        except Exception:  # noqa: S112 - refused, as it may be
            continue
        require_same(await store.get(twin), before, f"get of {shown(twin)} after {shown(odd)}")
