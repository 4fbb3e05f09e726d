"""One server process in a private directory of its own, ended by its pid."""

import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, final

from . import _watch
from .net import wait_until
from .server import ServerDiedError

NOBODY = 65534
LOG_TAIL = 2000


class _Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _account(*, unprivileged: bool) -> _Account:
    """Whom to run a process as: ourselves, or nobody where we are root and it refuses root."""
    if unprivileged and os.geteuid() == 0:
        return _Account(user=NOBODY, group=NOBODY, extra_groups=[])
    return _Account()


def _environment(home: Path) -> dict[str, str]:
    """What a server sees of our environment: no settings and no keys of whoever runs the tests."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LC_ALL": "C"}


def run_unprivileged(argv: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run *argv* to its end, never as root, and return what it said."""
    return subprocess.run(
        [str(part) for part in argv],
        env=_environment(Path("/")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=60,
        **_account(unprivileged=True),
    )


def private_directory(name: str, *, unprivileged: bool = False) -> Path:
    """Make a directory nobody else can read, gone when this run is, however that ends.

    With *unprivileged* it belongs to the user that `run_unprivileged` runs as.
    """
    path = Path(tempfile.mkdtemp(prefix=f"tnx-{name}-"))
    _watch.note(f"directory {path}")
    owner = _account(unprivileged=unprivileged)
    if owner:
        os.chown(path, NOBODY, NOBODY)
    return path


def remove_directory(path: Path) -> None:
    """Remove a private directory and all in it."""
    shutil.rmtree(path, ignore_errors=True)
    _watch.forget(f"directory {path}")


@final
class Child:
    """A server process. Only its own pid, and with `kill` those of its children, is signalled.

    `stop` asks and, past the grace, kills; `kill` gives it no chance. After either it is gone and
    reaped, and `start` begins another in the same directory. *litter* are files elsewhere that a
    kill leaves behind.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        directory: Path,
        env: Mapping[str, str] | None = None,
        unprivileged: bool = False,
        ask: signal.Signals = signal.SIGTERM,
        grace: float = 10.0,
        litter: Sequence[Path] = (),
    ) -> None:
        self.directory = directory
        self._argv = [str(part) for part in argv]
        self._env = {**_environment(directory), **(env or {})}
        self._account = _account(unprivileged=unprivileged)
        self._ask = ask
        self._grace = grace
        self._litter = litter
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        if self._process is not None and self._process.poll() is not None:
            _watch.forget(self._item(self._process))
            self._process = None
        return self._process is not None

    def _item(self, process: subprocess.Popen[bytes]) -> str:
        return f"process {process.pid} {self._ask.value}"

    def start(self) -> None:
        """Start the process; it may not answer yet. No effect while it runs."""
        if self.running:
            return
        with self._log().open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                cwd=self.directory,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it in order
                **self._account,
            )
        _watch.note(self._item(self._process))
        for path in self._litter:
            _watch.note(f"file {path}")

    def check(self) -> None:
        """Raise `ServerDiedError` with the end of its log if it ended by itself."""
        if not self.running:
            log = self._log().read_bytes()[-LOG_TAIL:].decode(errors="replace")
            raise ServerDiedError(f"{Path(self._argv[0]).name} ended by itself:\n{log}")

    def stop(self) -> None:
        """End the process in its own orderly way."""
        if self._process is None or not self.running:
            return
        self._process.send_signal(self._ask)
        try:
            self._process.wait(self._grace)
        except subprocess.TimeoutExpired:
            self.kill()
        assert not self.running

    def kill(self) -> None:
        """End the process and its children at once, as a power cut would."""
        if self._process is None or not self.running:
            return
        family = _watch.kill_family(self._process.pid)
        self._process.wait()
        for pid in family:
            wait_until(functools.partial(_watch.is_gone, pid), timeout=10, what=f"end of {pid}")
        assert not self.running

    def close(self) -> None:
        """End the process for good and remove its directory."""
        self.stop()
        remove_directory(self.directory)
        for path in self._litter:
            path.unlink(missing_ok=True)
            _watch.forget(f"file {path}")

    def _log(self) -> Path:
        return self.directory / "server.log"


def version_of(binary: Path, *arguments: str) -> str:
    """Return the first line *binary* prints when asked for its version."""
    done = subprocess.run(
        [str(binary), *(arguments or ("--version",))],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout.strip().splitlines()[0]


def on_path(*names: str) -> Iterator[Path]:
    """Yield each of *names* found on PATH or where systems keep their servers."""
    places = os.pathsep.join(
        [os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"]
    )
    for name in names:
        found = shutil.which(name, path=places)
        if found is not None:
            yield Path(found)
