"""URL or configuration -> `Store`.

Opening is lazy: no I/O and no import of a client library before the first call. Mistakes are not:
an unknown scheme, a misspelt option or a missing client library is an error right here.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ValidationError

from .compaction import CountTokens, Hook, OnMetric, estimate_tokens
from .errors import InvalidURL, MissingExtra
from .keeper import Policy
from .options import DriverOptions, Location, StoreOptions
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .driver import Driver

__all__ = ["open_store", "store_from_config"]

_GROUP = "toolnexus_stores.drivers"
_URL_VARIABLE = "TOOLNEXUS_STORE_URL"
_CONFIG_KEY = "conversationStore"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

Options = TypeVar("Options", StoreOptions, DriverOptions)


def open_store(
    url: str | None = None,
    *,
    before_compaction: Hook | None = None,
    on_metric: OnMetric | None = None,
    count_tokens: CountTokens = estimate_tokens,
    **overrides: object,
) -> Store:
    """The store that *url* names, or the environment variable ``TOOLNEXUS_STORE_URL``.

    *before_compaction* is called, on the caller's event loop, before a save drops stored messages;
    raising vetoes the save. *on_metric* is called with an event after. *count_tokens* replaces the
    runtime's estimate in both.

    Other keyword arguments override options of the URL's query. Nothing is connected or created
    until the first call. Raises `InvalidURL` or `MissingExtra`.
    """
    if url is None:
        url = os.environ.get(_URL_VARIABLE)
        if not url:
            raise InvalidURL(f"give open_store a URL, or set {_URL_VARIABLE}")
    label, driver, options = _resolved(url, overrides)
    policy = Policy(options.snapshots, before_compaction, on_metric, count_tokens)
    return Store(driver, options, label=label, policy=policy, vault=_vault_of(options))


def _vault_of(options: StoreOptions) -> Callable[[], Driver] | None:
    """What makes the driver of ``snapshot_url``."""
    if options.snapshot_url is None:
        return None
    if not options.snapshots:
        raise InvalidURL("snapshot_url keeps nothing without snapshots=, such as snapshots=10")
    _, driver, own = _resolved(options.snapshot_url.get_secret_value(), {})
    if own != StoreOptions():
        raise InvalidURL("snapshot_url takes options of its backend only, none of a store")
    return driver


def _resolved(
    url: str, overrides: Mapping[str, object]
) -> tuple[str, Callable[[], Driver], StoreOptions]:
    """What people may read of *url*, what makes its driver, and what it says of the store."""
    location, query = _taken_apart(url)
    model = _options_of(location.scheme)
    _require(location.scheme, model)
    values = {**query, **overrides}
    place = model.locate(location)
    of_driver = model.option_names() - place.keys()
    _refuse_unknown(values, of_driver | StoreOptions.model_fields.keys())
    options = _validated(
        StoreOptions, {k: v for k, v in values.items() if k in StoreOptions.model_fields}
    )
    chosen = {k: v for k, v in values.items() if k in of_driver}
    return _redacted(location), _validated(model, {**chosen, **place}).driver, options


def driver_at(url: str) -> Callable[[], Driver]:
    """What makes the drivers of *url*, not open yet, each over the same storage; for their tests.

    Raises `InvalidURL` or `MissingExtra`.
    """
    _, driver, _ = _resolved(url, {})
    return driver


def store_from_config(
    config: str | os.PathLike[str] | Mapping[str, object],
    *,
    before_compaction: Hook | None = None,
    on_metric: OnMetric | None = None,
    count_tokens: CountTokens = estimate_tokens,
) -> Store:
    """The store named in the runtime's own JSON configuration, under ``conversationStore``.

    *config* is the path of the JSON file that holds ``mcpServers``, or what it holds. The value is
    a URL, or a table with ``url`` and options; ``${NAME}`` in any string is replaced by that
    environment variable, as it stands. The other arguments are those of `open_store`. Raises
    `InvalidURL` or `MissingExtra`.
    """
    host = partial(
        open_store,
        before_compaction=before_compaction,
        on_metric=on_metric,
        count_tokens=count_tokens,
    )
    table = config if isinstance(config, Mapping) else _config_of(Path(config))
    entry = table.get(_CONFIG_KEY)
    if isinstance(entry, str):
        return host(_expanded(entry))
    if not isinstance(entry, Mapping):
        raise InvalidURL(f"the configuration's {_CONFIG_KEY!r} is a URL, or a table with 'url'")
    values: dict[str, Any] = {
        str(k): _expanded(v) if isinstance(v, str) else v for k, v in entry.items()
    }
    url = values.pop("url", None)
    if not isinstance(url, str):
        raise InvalidURL(f"the configuration's {_CONFIG_KEY!r} has no 'url'")
    return host(url, **values)


def _config_of(path: Path) -> Mapping[str, object]:
    try:
        table = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidURL(f"the configuration file {path.name!r} cannot be read as JSON") from error
    if not isinstance(table, Mapping):
        raise InvalidURL(f"the configuration file {path.name!r} is not a JSON object")
    return table


def _expanded(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise InvalidURL(f"the configuration names the environment variable {name}: not set")
        return os.environ[name]

    return _VARIABLE.sub(value, text)


def _taken_apart(url: object) -> tuple[Location, dict[str, object]]:
    """The location and the query's options. No text of *url* is shown: it may hold a password."""
    if not isinstance(url, str):
        raise InvalidURL(f"a store's URL is a string, not {type(url).__name__}")
    scheme, separator, _ = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise InvalidURL("a store's URL looks like scheme://…; the schemes are " + _scheme_list())
    if "#" in url:
        raise InvalidURL(f"{scheme}://: write a '#' in a URL as %23")
    if "\0" in unquote(url):
        raise InvalidURL(f"{scheme}://: the URL holds a NUL character")
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidURL(f"{scheme}://: the URL is malformed") from None
    query: dict[str, object] = dict(pairs)
    if len(query) != len(pairs):
        raise InvalidURL(f"{scheme}://: an option is given twice")
    return Location(scheme.lower(), parts.netloc, unquote(parts.path)), query


def _redacted(location: Location) -> str:
    """The URL for people to read: without user, password and options."""
    host = location.netloc.rpartition("@")[2]
    return f"{location.scheme}://{host}{location.path}"


def _options_of(scheme: str) -> type[DriverOptions]:
    names = _registered()
    entry = names.get(scheme) or names.get(scheme.partition("+")[0])
    if entry is not None:
        model: type[DriverOptions] = entry.load()
        if entry.name == scheme or scheme in model.aliases:
            return model
    raise InvalidURL(f"unknown scheme {scheme!r}{_hint(scheme, names)}; known: {_scheme_list()}")


def _scheme_list() -> str:
    return ", ".join(sorted(f"{name}://" for name in _registered()))


@cache
def _registered() -> Mapping[str, EntryPoint]:
    """The schemes; to read what every installed distribution says of itself takes milliseconds."""
    return {entry.name: entry for entry in entry_points(group=_GROUP)}


def _require(scheme: str, model: type[DriverOptions]) -> None:
    for module, requirement in model.requires.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(f"{scheme}:// needs: pip install '{requirement}'")


def _refuse_unknown(values: Mapping[str, object], known: Iterable[str]) -> None:
    for name in values:
        if name not in known:
            raise InvalidURL(f"unknown option {name[:40]!r}{_hint(name, known)}")


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _validated(model: type[Options], values: Mapping[str, object]) -> Options:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise InvalidURL(f"option {name!r}: {reason}" if name else reason) from None
