# SPDX-License-Identifier: Apache-2.0
"""Where an allocation was made, in one line that a reader knows. A stack of PyTorch's ends in dozens of frames of C++
that are the same for every tensor (at::detail::empty_generic and its like)."""

from __future__ import annotations

import re
from typing import NamedTuple

from memoir._core import Trace

_PYTHON = re.compile(r"(?P<file>.+\.py|<[^>]+>):(?P<line>\d+) (?P<function>.+)", re.DOTALL)
_OF_TORCH = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")
_FOLDER = re.compile(r".*[/\\]", re.DOTALL)
_OPERATOR = re.compile(r"\bat::_ops::(\w+)::(?:call|redispatch)\(")
_BACKWARD = re.compile(r"\btorch::autograd::(?:generated::)?(\w+)::apply\(")


class Places:
    """Of the sites of one trace.

    A place is the innermost line of Python outside of PyTorch, then the innermost one inside (or the operator that it
    called): "train.py:21 step > functional.py:2388 linear". Stacks without Python (a backward pass) are named by the node
    and its operator: "PowBackward0 > mul_Scalar". Others by their innermost frame.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[int, _Seen] = {}

    def of(self, site: int) -> str:
        """ "" for a site that the trace does not define."""
        chain = []  # stacks are a tree: a site is its parent and one frame more
        at: int | None = site
        while at and at not in self._known:
            chain.append(at)
            at = self._trace.site_parent(at)
        seen = self._known[at] if at else _Seen()
        for each in reversed(chain):
            seen = self._known[each] = seen.below(self._trace.site_name(each))
        if seen.own:
            return _joined(seen.own, seen.innermost or seen.operator)
        return seen.innermost or _joined(seen.backward, seen.operator) or self._trace.site_name(site)


class _Seen(NamedTuple):
    """What the frames of a stack tell, from its innermost one outwards to the first line that is not PyTorch's."""

    own: str = ""  # that line
    innermost: str = ""  # PyTorch's innermost line
    operator: str = ""  # the outermost one that this line called
    backward: str = ""  # the node of a backward pass, which ends the search for operators

    def below(self, frame: str) -> _Seen:
        """The same with this frame inside of all others."""
        python = _PYTHON.fullmatch(frame)
        if python and not _OF_TORCH.search(python["file"]):
            return _Seen(own=frame)
        if python:
            return _Seen(self.own, _FOLDER.sub("", python["file"]) + frame[len(python["file"]) :])
        found, node = _OPERATOR.search(frame), _BACKWARD.search(frame)
        operator = found[1] if found else ""
        if node:
            return _Seen(self.own, self.innermost, operator, node[1])
        return self._replace(operator=self.operator or operator)


def _joined(outer: str, inner: str) -> str:
    return " > ".join(filter(None, (outer, inner)))
