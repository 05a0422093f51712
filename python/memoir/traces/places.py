# SPDX-License-Identifier: Apache-2.0
"""Where an allocation was made, in one line that a reader knows. A stack of PyTorch's ends in dozens of frames of C++
that are the same for every tensor (at::detail::empty_generic and its like)."""

from __future__ import annotations

import re

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
        self._known: dict[int, str] = {}

    def of(self, site: int) -> str:
        """ "" for a site that the trace does not define."""
        known = self._known.get(site)
        if known is None:
            known = self._known[site] = self._find(site)
        return known

    def _find(self, site: int) -> str:
        innermost = operator = backward = ""
        at: int | None = site
        while at:
            frame = self._trace.site_name(at)
            python = _PYTHON.fullmatch(frame)
            if python and not _OF_TORCH.search(python["file"]):
                return _joined(frame, innermost or operator)
            if python:
                innermost = innermost or _FOLDER.sub("", python["file"]) + frame[len(python["file"]) :]
            elif (
                not innermost and not backward
            ):  # the outermost operator that PyTorch's innermost line called
                found, node = _OPERATOR.search(frame), _BACKWARD.search(frame)
                operator = found[1] if found else operator
                backward = node[1] if node else ""
            at = self._trace.site_parent(at)
        return innermost or _joined(backward, operator) or self._trace.site_name(site)


def _joined(outer: str, inner: str) -> str:
    return " > ".join(filter(None, (outer, inner)))
