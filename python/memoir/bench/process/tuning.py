# SPDX-License-Identifier: Apache-2.0
"""Settings of a machine that make timings steadier, changed and put back as far as this user may."""

from __future__ import annotations

import glob
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from memoir._core import Error
from memoir.base.files import make_folder, read_beside, write_output, write_setting


@dataclass(frozen=True)
class Setting:
    """One file of the kernel, or many of one kind."""

    pattern: str
    wanted: str
    fits: tuple[str, ...]  # values that are as good
    why: str


SETTINGS = (
    Setting(
        "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
        "performance",
        ("performance",),
        "the clock stays where it is",
    ),
    Setting(
        "/sys/devices/system/cpu/intel_pstate/no_turbo", "1", ("1",), "the clock does not depend on heat"
    ),
    Setting("/sys/devices/system/cpu/cpufreq/boost", "0", ("0",), "the clock does not depend on heat"),
    Setting(
        "/proc/sys/kernel/perf_event_paranoid",
        "1",
        ("1", "0", "-1"),
        "cycles, instructions and TLB misses may be counted, the kernel's too",
    ),
    Setting(
        "/proc/sys/kernel/randomize_va_space",
        "2",
        ("2",),
        "every run has a layout of its own, so none is favoured",
    ),
)


@dataclass(frozen=True)
class Change:
    path: str
    before: str
    after: str
    why: str
    done: bool
    command: str  # what somebody with more rights would type
    foreign: bool = False  # somebody else has changed it since fix() did: it was left alone


@dataclass(frozen=True)
class _Kept:
    before: str
    after: str


def wanted() -> list[Change]:
    """What is not as it should be; nothing is changed."""
    return [change for setting in SETTINGS for change in _of(setting)]


def fix() -> list[Change]:
    """Changes what it may, and remembers what was there for undo()."""
    found = []
    kept = _read_kept()
    for change in wanted():
        done = _write(change.path, change.after)
        if done:
            older = kept.get(change.path)
            mine = older is not None and older.after == change.before
            kept[change.path] = _Kept(older.before if older and mine else change.before, change.after)
        found.append(Change(change.path, change.before, change.after, change.why, done, change.command))
    if kept:
        _write_kept(kept)
    return found


def undo() -> list[Change]:
    """Puts back what fix() changed. What cannot be put back stays remembered; what somebody else has changed since is left
    as it is, and forgotten."""
    kept, found = _read_kept(), []
    if not kept:
        raise Error("--undo: nothing was changed by --fix")
    for path, one in list(kept.items()):
        now = _read(path) or ""
        foreign = now not in (one.after, one.before)
        done = not foreign and _write(path, one.before)
        if done or foreign:
            del kept[path]
        found.append(
            Change(path, now, one.before, "as it was", done, _command(path, one.before), foreign=foreign)
        )
    _write_kept(kept)
    return found


def _of(setting: Setting) -> list[Change]:
    found = []
    for path in sorted(glob.glob(setting.pattern)):
        now = _read(path)
        if now is not None and now not in setting.fits:
            command = _command(path, setting.wanted)
            found.append(Change(path, now, setting.wanted, setting.why, False, command))
    return found


def _command(path: str, value: str) -> str:
    return f"echo {value} | sudo tee {path}"


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _write(path: str, value: str) -> bool:
    """True when the file then says so."""
    try:
        write_setting(Path(path), value)
    except OSError:
        return False
    return _read(path) == value


def _kept() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state) / "memoir" / "settings.json"


def _write_kept(kept: dict[str, _Kept]) -> None:
    if not kept:
        _kept().unlink(missing_ok=True)
        return
    make_folder(_kept().parent, private=True)
    text = json.dumps({path: asdict(one) for path, one in kept.items()}, indent=1) + "\n"
    write_output(_kept(), text.encode(), force=True, private=True)


def _read_kept() -> dict[str, _Kept]:
    try:
        kept = json.loads(read_beside(_kept(), 1 << 20))
    except (OSError, ValueError):
        return {}
    known = {path for setting in SETTINGS for path in glob.glob(setting.pattern)}
    return {
        path: _Kept(str(value.get("before", "")), str(value.get("after", "")))
        for path, value in (kept.items() if isinstance(kept, dict) else ())
        if path in known and isinstance(value, dict)
    }
