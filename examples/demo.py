"""A conversation that survives the end of its process. Worth watching: ``make demo``.

An agent of the runtime answers a customer in a process of its own. In the middle of a turn, while a
tool runs, that process gets a SIGKILL. A new process goes on with the same conversation id. In the
end the parent of both reads what is stored and compares it with what it said and heard.

Everything but the model is real; the model is a script that runs inside the agent's process and
knows only what is in the messages that it is shown. The database is ``demo.db`` in the current
directory: made if it is missing, never deleted. Every run has a conversation id of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from toolnexus import create_in_process_client, create_toolkit, define_tool
from toolnexus_stores import StoreError, open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    Message = dict[str, Any]

URL = "sqlite:///demo.db"

FIRST_PROMPTS = ("Hello, I am Ada.", "Where is my order 4711?", "When will it be here?")
LATER_PROMPTS = ("Are you still there? When will it be here?", "And you still know who I am?")
KILLED_DURING = "call_driver"
LOOK_INSIDE = "  sqlite3 demo.db 'SELECT position, text FROM toolnexus_transcripts'"


# The agent's process: real client, real tools, real store, and a scripted model.


async def answer_customer(id: str) -> None:
    """Answer what comes on stdin, a line a turn, and report every step on stdout."""
    tools: list[Any] = [define_tool(find_parcel), define_tool(call_driver)]
    async with (
        open_store(URL) as store,
        await create_toolkit(builtins=False, extra_tools=tools) as toolkit,
    ):
        client = create_in_process_client(
            model="scripted", generate=think, hooks={"after_llm": sign}, store=store
        )
        report("starts", stored=len(await store.get(id) or []))
        while prompt := (await asyncio.to_thread(sys.stdin.readline)).strip():
            result = await client.ask(prompt, toolkit, id=id)
            report("says", text=result.text)


def think(request: dict[str, Any]) -> dict[str, Any]:
    """The model. Name, order and tool results: it takes them from the messages, or lacks them."""
    step("thinks")
    messages = request["messages"]
    said = " ".join(message["content"] for message in messages if message["role"] == "user")
    name, order = found(r"I am (\w+)", said), found(r"order (\d+)", said)
    learned = [message["content"] for message in messages if message["role"] == "tool"]
    if messages[-1]["role"] == "tool":
        return {"content": f"{name}, {learned[-1]}."}
    prompt = messages[-1]["content"]
    for word, tool in (("Where", "find_parcel"), ("When", "call_driver")):
        if word in prompt:
            return {"tool_calls": [{"name": tool, "arguments": {"order": order}}]}
    if "who I am" in prompt:
        return {"content": f"You are {name}, and I know that {' and '.join(learned)}."}
    return {"content": f"Hello {name}. What can I do for you?"}


def found(pattern: str, text: str) -> str:
    """What the group of *pattern* matches in *text*."""
    match = re.search(pattern, text)
    return match[1] if match else "unknown"


def find_parcel(order: str) -> str:
    """Where the parcel of an order is."""
    step("calls", tool=f"find_parcel({order})")
    return f"order {order} left Lyon at 8:15"


def call_driver(order: str) -> str:
    """What the driver says about an order."""
    step("calls", tool=f"call_driver({order})")
    return f"the driver brings order {order} tomorrow at 10"


def sign(event: dict[str, Any]) -> None:
    """Put this process's id into the model's message, as a provider's own key would be."""
    event["response"]["choices"][0]["message"]["pid"] = os.getpid()


def report(event: str, **details: object) -> None:
    """Tell the demo what happens here; without the demo, end."""
    try:
        print(json.dumps({"event": event, **details}), flush=True)
    except BrokenPipeError:
        os._exit(1)


def step(event: str, **details: object) -> None:
    """Report what begins here, and wait until the demo lets it go on, or kills this process."""
    report(event, **details)
    if not sys.stdin.readline():
        os._exit(1)  # the demo has ended


# The demo's process: it plays the customer, sets the pace, kills, and checks.


@dataclass
class Turn:
    """One turn as the customer saw it."""

    pid: int
    prompt: str
    tools: list[str] = field(default_factory=list)
    reply: str = ""


class AgentProcess:
    """A process that runs `answer_customer`; it ends when the demo does."""

    def __init__(self, id: str) -> None:
        command = [sys.executable, __file__, "--agent", id]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, encoding="utf-8", bufsize=1
        )
        self.pid = self._child.pid

    def tell(self, line: str = "") -> None:
        """A prompt, or just: go on."""
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")

    def hear(self) -> dict[str, Any]:
        """The next report."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            sys.exit(f"demo: the agent's process {self.pid} ended before its time")
        event: dict[str, Any] = json.loads(line)
        return event

    def kill(self) -> int:
        """SIGKILL: nothing in that process runs any more, no ``finally``, no ``close``."""
        self._child.kill()
        return self._child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._child.__exit__(kind, error, traceback)  # closes its stdin, so that it ends; waits


class Stage:
    """Where it is shown, and how fast."""

    def __init__(self, *, fast: bool) -> None:
        self.console = Console(highlight=False)
        self._fast = fast

    def line(self, who: str, text: str, style: str) -> None:
        """One line of the conversation."""
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=14, justify="right", style=style)
        grid.add_column()
        grid.add_row(Text(who), Text(text))
        self.console.print(grid)

    def scene(self, text: str, style: str) -> None:
        """A change of scene."""
        self.console.print()
        self.console.print(Panel(Text(text, justify="center"), style=style))
        self.wait(1)

    def wait(self, seconds: float, what: str = "") -> None:
        """Time to read, or to see somebody busy with *what*."""
        if self._fast:
            return
        if what and self.console.is_terminal:
            with self.console.status(Text(what), spinner="line"):
                time.sleep(seconds)
        else:
            time.sleep(seconds)


def take_turn(stage: Stage, agent: AgentProcess, prompt: str, style: str) -> Turn | None:
    """Say *prompt* and show what comes of it; None if the agent waits inside `KILLED_DURING`."""
    turn = Turn(agent.pid, prompt)
    stage.line("customer", prompt, "bold")
    agent.tell(prompt)
    while True:
        match agent.hear():
            case {"event": "thinks"}:
                stage.wait(0.7, "thinking")
            case {"event": "calls", "tool": tool}:
                turn.tools.append(tool)
                stage.line("tool", tool, "dim")
                stage.wait(1.1, "running")
                if prompt == FIRST_PROMPTS[-1] and tool.startswith(KILLED_DURING):
                    return None
            case {"event": "says", "text": reply}:
                stage.line(f"agent {agent.pid}", reply, style)
                stage.wait(0.7)
                turn.reply = reply
                return turn
        agent.tell()


def first_part(stage: Stage, id: str) -> tuple[list[Turn], int]:
    """The conversation until the kill: its finished turns, and the process's exit status."""
    turns: list[Turn] = []
    with AgentProcess(id) as agent:
        stored = agent.hear()["stored"]
        stage.scene(f"process {agent.pid} starts, finds {stored} messages", "cyan")
        for prompt in FIRST_PROMPTS:
            turn = take_turn(stage, agent, prompt, "bold cyan")
            if turn is not None:
                turns.append(turn)
        status = agent.kill()
        stage.scene(f"SIGKILL while {KILLED_DURING} runs: process {agent.pid} is gone", "red")
    return turns, status


def second_part(stage: Stage, id: str) -> list[Turn]:
    """The conversation from there on, in a new process."""
    with AgentProcess(id) as agent:
        stored = agent.hear()["stored"]
        stage.scene(f"process {agent.pid} starts, finds {stored} messages", "magenta")
        turns = [take_turn(stage, agent, prompt, "bold magenta") for prompt in LATER_PROMPTS]
    return [turn for turn in turns if turn is not None]


async def stored_transcript(id: str) -> tuple[list[Message] | None, int]:
    """What is stored under *id*, and how many conversations there are."""
    async with open_store(URL) as store:
        return await store.get(id), len([id async for id in store.ids()])


def processes(messages: Sequence[Message]) -> list[int]:
    """Which process wrote each message. A turn is saved by the process that ends it."""
    pids: list[int] = []
    for message in reversed(messages):
        pids.append(message.get("pid") or (pids[-1] if pids else 0))
    return pids[::-1]


def content(message: Message) -> str:
    """A message on one line."""
    calls = [call["function"] for call in message.get("tool_calls", ())]
    if calls:
        return ", ".join(f"{c['name']}({json.loads(c['arguments'])['order']})" for c in calls)
    return str(message["content"])


def expected(turns: Sequence[Turn]) -> list[tuple[int, str, str | None]]:
    """Process, role and content of every message that *turns* leave; None: any content."""
    messages: list[tuple[int, str, str | None]] = []
    for turn in turns:
        messages.append((turn.pid, "user", turn.prompt))
        for tool in turn.tools:
            messages += [(turn.pid, "assistant", tool), (turn.pid, "tool", None)]
        messages.append((turn.pid, "assistant", turn.reply))
    return messages


def is_what_was_said(messages: Sequence[Message] | None, turns: Sequence[Turn]) -> bool:
    """Whether the stored transcript is exactly *turns*: no message missing, added or swapped."""
    if messages is None:
        return False
    wanted = expected(turns)
    return len(messages) == len(wanted) and all(
        (pid, message["role"]) == (by, role) and text in (None, content(message))
        for message, pid, (by, role, text) in zip(
            messages, processes(messages), wanted, strict=True
        )
    )


def show_transcript(stage: Stage, messages: Sequence[Message]) -> None:
    """The transcript as a table."""
    table = Table(title="What is stored, read by a third process", title_justify="left")
    for name in ("#", "process", "role", "message"):
        table.add_column(name, justify="right" if name == "#" else "left", overflow="fold")
    pids = processes(messages)
    for number, (pid, message) in enumerate(zip(pids, messages, strict=True), 1):
        style = "cyan" if pid == pids[0] else "magenta"
        table.add_row(str(number), str(pid), message["role"], Text(content(message)), style=style)
    stage.console.print()
    stage.console.print(table)


def run(stage: Stage) -> int:
    """The whole demo; 0 if everything is as it should be."""
    id = f"demo-{secrets.token_hex(4)}"
    stage.console.print(Text(f"Conversation {id} in {URL}"))
    early, status = first_part(stage, id)
    left, _ = asyncio.run(stored_transcript(id))
    left_whole = is_what_was_said(left, early)
    verdict = "the turns that ended, nothing else" if left_whole else "not the turns that ended"
    stage.line("stored", f"{len(left or [])} messages: {verdict}", "green" if left_whole else "red")
    stage.wait(1)
    late = second_part(stage, id)
    final, conversations = asyncio.run(stored_transcript(id))
    show_transcript(stage, final or [])

    checks = {
        "the first process died of SIGKILL, in the middle of its last turn": (
            status == -signal.SIGKILL and len(early) == len(FIRST_PROMPTS) - 1
        ),
        "after that, the turns that had ended were stored, nothing else": left_whole,
        "in the end, every turn of two processes is stored": (
            is_what_was_said(final, [*early, *late]) and early[0].pid != late[0].pid
        ),
        "the second process knows what the first one heard": all(
            fact in late[-1].reply for fact in ("Ada", "4711", "Lyon", "tomorrow")
        ),
    }
    stage.console.print()
    for check, holds in checks.items():
        stage.line("yes" if holds else "NO", check, "bold green" if holds else "bold red")
    plural = "s" if conversations > 1 else ""
    stage.console.print(
        Text(f"\ndemo.db holds {conversations} conversation{plural}; to look inside:")
    )
    stage.console.print(Text(LOOK_INSIDE))
    return 0 if all(checks.values()) else 1


def main() -> int:
    """The demo, or with ``--agent`` the process that it starts and kills."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fast", action="store_true", help="no pauses")
    parser.add_argument("--agent", metavar="ID", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        if arguments.agent:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its stdin does
            asyncio.run(answer_customer(arguments.agent))
            return 0
        return run(Stage(fast=arguments.fast))
    except StoreError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
