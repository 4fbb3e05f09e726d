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
_FORMS = {unicodedata.normalize(form, _WORD) for form in ("NFC", "NFD", "NFKC", "NFKD")}
_BETWEEN = ("/", "_", ":", "%2F", "%2f", "\\", "-", ".", " ", "", "//", "|", "#", "?", "&", "+")
_LENGTHS = (200, 255, 1_000, 2_200, 2_700, 9_000)

_SEPARATORS = tuple(f"{{}}a{each}b" for each in _BETWEEN)
_PATHS = (
    *("{}", "/{}", "./{}", "../{}", "../../{}", "{}/", "{}/.", "{}/..", "/etc/{}", "~/{}"),
    *("{}/../x", "{}/x", "C:\\{}", "\\\\host\\{}", "file:///{}", "{}.json", "{}.db"),
    *("%2e%2e%2f{}", "..%c0%af{}", "{}/./x", "root/{}.1", "root/{}.1/helper.1"),
)
_CASES = ("{}-chat", "{}-Chat", "{}-CHAT", "{}-I", "{}-i", "{}-\u0130", "{}-\u0131")
_LOOKALIKES = (
    *(f"{{}}{form}" for form in sorted(_FORMS)),
    *("{}мой-проект", "{}проект-мой", "{}ひらがな", "{}ひらかな", "{}\u200b", "{}\ufeff"),
    *("{}\U0001f436", "{}\u0430", "{}a"),
)
_CONTROLS = (
    *("{}", "{}\x00", "{}\x00a", "\x00{}", "{}\n", "{}\r\n", "\n{}", "{}\t", "{}\x1b[31m"),
    *("{}\ud83c", "{}\udc00", "{}\x7f", "{}\u2028"),
)
_ENDS = ("{}", "{} ", " {}", "{}.", ".{}", "{}..", "{}  ", "\u00a0{}", "{}\u3000")
_RESERVED = (
    *(
        "CON.{}",
        "nul.{}",
        "aux.{}",
        ".git{}",
        ".{}.swp",
        "index-{}",
        "meta-{}",
        "{}.lock",
        "{}.tmp",
        "{}.jsonl",
    ),
    *("{}*", "*{}", "{}%", "%{}", "{}_", "_{}", "{}?", "[a]{}", "{}'", '{}"', "{};--"),
    *("${}", "{{{}}}", "<{}>", "{}:0", "__{}__", "-{}", "{}=1", "{}@h"),
)
_PREFIXES = ("{}", *(f"{{}}{'x' * n}" for n in (1, 2, 3, 30)))
_LONG = tuple(f"{{}}{'x' * n}{end}" for n in _LENGTHS for end in ("a", "b"))

ALL_SHAPES = tuple(
    dict.fromkeys(
        (
            *(*_SEPARATORS, *_PATHS, *_CASES, *_LOOKALIKES, *_CONTROLS, *_ENDS),
            *(*_RESERVED, *_PREFIXES, *_LONG),
        )
    )
)
"""Every kind of id that is tested here; ``{}`` stands for a fresh one."""


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
    """Agent ids have slashes: `root/helper.1`. Ids that were made safe for files by replacing
    characters collide, and one user reads another's conversation.
    """
    await _all_distinct(subject, _SEPARATORS)


@check("core", "An id that looks like a path is an id.")
async def paths(subject: Subject) -> None:
    """The id of a conversation can be chosen by a remote peer. As a path it reads and writes any
    file.
    """
    await _all_distinct(subject, _PATHS)


@check("core", "Ids that differ in case are different conversations.")
async def letter_case(subject: Subject) -> None:
    """Some file systems and collations ignore case, and ids in base64 differ in nothing else."""
    await _all_distinct(subject, _CASES)


@check("core", "Ids that look alike in Unicode are different conversations.")
async def unicode_forms(subject: Subject) -> None:
    """File systems and databases normalise text. Names of people and projects come
    in both forms.
    """
    await _all_distinct(subject, _LOOKALIKES)


@check("core", "Ids with NUL, newlines or half a character are ids.")
async def control_characters_in_ids(subject: Subject) -> None:
    """Ids come out of other systems, with a newline at the end, or with half a character."""
    await _all_distinct(subject, _CONTROLS)


@check("core", "Spaces and dots at the ends of an id count.")
async def ends(subject: Subject) -> None:
    """Blanks and dots at the end are dropped by SQL comparisons and by file systems."""
    await _all_distinct(subject, _ENDS)


@check("core", "Names that systems reserve, and wildcards, are ids.")
async def reserved_names(subject: Subject) -> None:
    """Ids must not meet a store's own files and keys, a device, or the wildcards of a query."""
    await _all_distinct(subject, _RESERVED)


@check("core", "An id that another one begins with is another conversation.")
async def prefixes(subject: Subject) -> None:
    """A listing by prefix, or a LIKE, finds the neighbour too."""
    await _all_distinct(subject, _PREFIXES)


@check("core", "Ids may be long, and differ only at their very end.")
async def long_ids(subject: Subject) -> None:
    """File names end at 255 bytes, index keys at 2,700. What is cut off there is what tells ids
    apart.
    """
    await _all_distinct(subject, _LONG)


@check("core", "Something that is not a string is refused, or at least no string's conversation.")
async def ids_of_other_types(subject: Subject) -> None:
    """`7` and `"7"` are two ids for the runtime. A store that calls str() on them mixes two
    conversations.
    """
    store = await subject.open()
    twins: list[tuple[Any, str]] = [(7, "7"), (None, "None"), (("a",), "('a',)"), (b"a", "b'a'")]
    for odd, twin in twins:
        before = await store.get(twin)
        try:
            await store.raw.save(odd, transcript("odd", 1))
        except Exception:  # noqa: S112 - refused, as it may be
            continue
        require_same(await store.get(twin), before, f"get of {shown(twin)} after {shown(odd)}")
