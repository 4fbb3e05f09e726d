"""From what an author names to a store: factories, however they are written.

A factory is called without arguments and gives a store, now or awaited, as an object or as a
(async) context manager or generator around one. Called again, it opens the *same* storage again.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

__all__ = ["Factory", "NotAStore", "enter", "resolve"]

Factory: TypeAlias = "str | Callable[[], Any]"
"""``"package.module:factory"``, the URL of a store of ours, or the factory itself."""


class NotAStore(TypeError):
    """What the factory gave, or its name, is not what the suite can work with."""


def resolve(factory: Factory) -> Callable[[], Any]:
    """The factory that *factory* names. Raises `NotAStore`."""
    if not isinstance(factory, str):
        return factory
    if "://" in factory.partition("(")[0]:
        return _opening(factory)
    factory, arguments = _without_arguments(factory)
    module, separator, name = factory.partition(":")
    if not separator:
        raise NotAStore(f"a factory is named 'package.module:factory' or by URL, not {factory!r}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NotAStore(f"the factory {factory!r} cannot be imported: {error}") from error
    if not callable(found):
        raise NotAStore(f"the factory {factory!r} is not callable")
    made: Callable[..., Any] = found
    return lambda: made(*arguments)


def _without_arguments(factory: str) -> tuple[str, tuple[Any, ...]]:
    """``"module:factory('text', 2)"``: the name, and the literals that it is to be called with."""
    name, parenthesis, rest = factory.partition("(")
    return name, ast.literal_eval(f"({rest[:-1]},)") if parenthesis and rest[:-1] else ()


def _opening(url: str) -> Callable[[], Any]:
    from toolnexus_stores import open_store  # noqa: PLC0415 - a bare store needs none of ours

    return lambda: open_store(url)


async def enter(factory: Callable[[], Any], stack: AsyncExitStack) -> Any:
    """A store from *factory*; *stack* closes it. Raises `NotAStore`."""
    store = factory()
    if inspect.isasyncgen(store):
        store = _around(cast("AsyncGenerator[Any, None]", store))
    elif inspect.isawaitable(store):
        store = await store
    if hasattr(store, "__aenter__"):
        store = await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", store))
    elif hasattr(store, "__enter__"):
        store = stack.enter_context(cast("AbstractContextManager[Any]", store))
    else:
        stack.push_async_callback(_close, store)
    _require_methods(store)
    return store


@asynccontextmanager
async def _around(generator: AsyncGenerator[Any, None]) -> AsyncIterator[Any]:
    """What an async generator yields, until it is left."""
    async with aclosing(generator):
        yield await anext(generator)
        await anext(generator, None)


def _require_methods(store: object) -> None:
    names = [name for name in ("get", "load", "save") if callable(getattr(store, name, None))]
    if "save" not in names or len(names) == 1:
        kind = type(store).__name__
        raise NotAStore(f"the factory gave {kind}, which lacks get(id) or save(id, messages)")


async def _close(store: object) -> None:
    """Close *store* by whichever method it has for that, if it has one."""
    for name in ("aclose", "close"):
        close = getattr(store, name, None)
        if callable(close):
            closing = close()
            if inspect.isawaitable(closing):
                await closing
            return
