"""Plain functions as the runtime's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from toolnexus import create_toolkit, define_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolnexus import Tool
    from toolnexus.toolkit import Toolkit

__all__ = ["tool", "toolkit_of"]


def tool(function: Callable[..., Any]) -> Tool:
    """*function* as a tool of the runtime; its name and parameters are the tool's."""
    return cast("Tool", define_tool(function))  # called with a function, it gives no decorator


async def toolkit_of(*functions: Callable[..., Any]) -> Toolkit:
    """A toolkit of exactly these tools."""
    return await create_toolkit(builtins=False, extra_tools=[tool(each) for each in functions])
