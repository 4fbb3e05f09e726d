"""Faults of every kind, made on purpose: what a store must stand.

- `syscalls`: a process is killed, fails, or writes only in part, at each of its system calls;
- `crashstates`: the power is lost at each moment of a save;
- `fallback`: what can be done where system calls cannot be watched.

`replay` repeats the one fault that a violation names.
"""

from .bench import replay

__all__ = ["replay"]
