"""From what an author names to a store: factories, however they are written.

A factory is called without arguments and gives a store, now or awaited, as an object or as a
(async) context manager or generator around one. Called again, it opens the *same* storage again.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import traceback
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

__all__ = [
    "Factory",
    "NotAStore",
    "described",
    "enter",
    "is_theirs",
    "passwords_of",
    "place_at",
    "place_of",
    "resolve",
    "shown_factory",
    "without_passwords",
]

Factory: TypeAlias = "str | Callable[[], Any]"
"""``"package.module:factory"``, ``"package.module:factory('an argument')"``, the URL of a store of
ours, or the factory itself."""

_PASSWORD = re.compile(r"://[^/@\s:'\"]*:([^/@\s'\"]+)@")
_OUR_PACKAGES = ("toolnexus_stores", "toolnexus_stores_contract")


class NotAStore(TypeError):
    """What the factory gave, or its name, is not what the suite can work with."""


def resolve(factory: Factory, *, kind: str = "store") -> Callable[[], Any]:
    """The factory that *factory* names. Raises `NotAStore`."""
    if not isinstance(factory, str):
        if not callable(factory):
            raise NotAStore(f"a factory is a name or a callable, not {type(factory).__name__}")
        return factory
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", factory):
        return _opening(factory, kind)
    module, separator, name = factory.partition(":")
    if not separator:
        raise NotAStore(
            f"a factory is named 'package.module:factory' or by URL, not {shown_factory(factory)!r}"
        )
    path, arguments, named = _call_of(name, factory)
    found = _imported(module, path, factory)
    if not callable(found):
        raise NotAStore(f"the factory {shown_factory(factory)!r} is not callable")
    return partial(found, *arguments, **named) if arguments or named else found


def _call_of(name: str, factory: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The dotted name and the literal arguments of ``name`` or ``name(arguments)``."""
    path, opened, _ = name.partition("(")
    if not opened:
        return path, [], {}
    try:
        call = ast.parse(name, mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != path:
            raise ValueError(name)  # noqa: TRY301 - one answer to all that it is not
        arguments = [ast.literal_eval(each) for each in call.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords if each.arg}
        if len(named) != len(call.keywords):
            raise ValueError(name)  # noqa: TRY301 - as above
    except (SyntaxError, ValueError):
        raise NotAStore(
            f"the arguments in {shown_factory(factory)!r} are not literals such as 'text' or 7"
        ) from None
    return path, arguments, named


def _imported(module: str, path: str, factory: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        shown = error if isinstance(error, ImportError | AttributeError) else described(error)
        where = place_of(error)
        raise NotAStore(
            f"the factory {shown_factory(factory)!r} cannot be imported: {shown}"
            + (f" ({where})" if where else "")
        ) from error
    return found


def _opening(url: str, kind: str) -> Callable[[], Any]:
    from toolnexus_stores import open_store  # noqa: PLC0415 - a bare store needs none of ours
    from toolnexus_stores.url import driver_at  # noqa: PLC0415

    try:
        return driver_at(url) if kind == "driver" else partial(open_store, url)
    except Exception as error:
        raise NotAStore(described(error)) from error


async def enter(factory: Callable[[], Any], stack: AsyncExitStack) -> Any:
    """What *factory* gives; *stack* closes it. Raises `NotAStore`."""
    try:
        return await _entered(factory, stack)
    except (Exception, SystemExit) as error:
        where = place_of(error)
        raise NotAStore(
            f"the factory raised {described(error)}" + (f" ({where})" if where else "")
        ) from error


async def _entered(factory: Callable[[], Any], stack: AsyncExitStack) -> Any:
    store = factory()
    if inspect.isasyncgen(store):
        store = _around(cast("AsyncGenerator[Any, None]", store))
    elif inspect.isgenerator(store):
        store = _around_it(cast("Generator[Any, None, None]", store))
    elif inspect.isawaitable(store):
        store = await store
    if hasattr(store, "__aenter__"):
        return await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", store))
    if hasattr(store, "__enter__"):
        return stack.enter_context(cast("AbstractContextManager[Any]", store))
    stack.push_async_callback(_close, store)
    return store


@asynccontextmanager
async def _around(generator: AsyncGenerator[Any, None]) -> AsyncIterator[Any]:
    """What an async generator yields, until it is left."""
    async with aclosing(generator):
        yield await anext(generator)
        await anext(generator, None)


@contextmanager
def _around_it(generator: Generator[Any, None, None]) -> Iterator[Any]:
    """What a generator yields, until it is left."""
    with closing(generator):
        yield next(generator)
        next(generator, None)


async def _close(store: object) -> None:
    """Close *store* by whichever method it has for that, if it has one."""
    for name in ("aclose", "close"):
        close = getattr(store, name, None)
        if callable(close):
            closing = close()
            if inspect.isawaitable(closing):
                await closing
            return


def described(error: BaseException) -> str:
    """*error* in one short line."""
    text = " ".join(ascii(str(error))[1:-1].split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def place_of(error: BaseException | None) -> str:
    """Where *error* was raised, as ``file.py:12, in name``: the last line that is not ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    theirs = [frame for frame in frames if is_theirs(frame.filename)]
    return place_at(theirs[-1].filename, theirs[-1].lineno, theirs[-1].name) if theirs else ""


def place_at(file: str, line: int | None, name: str) -> str:
    """A place in the code in words."""
    return f"{Path(file).name}:{line}, in {name}"


def is_theirs(file: str) -> bool:
    """Whether *file* is an author's: not the suite's, not Python's, not an installed library's."""
    parts = Path(file).parts
    python = Path(ast.__file__).parent.parts
    return (
        not set(parts) & {*_OUR_PACKAGES, "site-packages", "dist-packages"}
        and parts[: len(python)] != python
        and not file.startswith("<")
    )


def passwords_of(factory: Factory) -> list[str]:
    """The passwords of the URLs in the name of a factory."""
    return _PASSWORD.findall(factory) if isinstance(factory, str) else []


def shown_factory(factory: Factory) -> str:
    """*factory* as a report shows it: without the passwords of its URLs."""
    if not isinstance(factory, str):
        return str(getattr(factory, "__qualname__", None) or type(factory).__name__)
    return without_passwords(factory, factory)


def without_passwords(text: str, factory: Factory) -> str:
    """*text* without the passwords in the name of *factory*."""
    for password in passwords_of(factory):
        text = text.replace(password, "***")
    return text
