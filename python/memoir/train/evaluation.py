# SPDX-License-Identifier: Apache-2.0
"""What a model says of the contexts of a profile, next to what the profile says of them itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from memoir._core import LifetimeModel
from memoir.train.assembly import STAGE_NAMES
from memoir.train.calibration import Predictions
from memoir.train.contexts import CLASSES, Contexts

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALL_STAGES = 31


@dataclass
class Answers:
    """Of each context; where `stage` is negative the model abstained."""

    stage: NDArray[numpy.int64]
    wall: NDArray[numpy.float64]
    long: NDArray[numpy.float64]  # the probability
    samples: NDArray[numpy.float64]
    coverage: NDArray[numpy.float64]
    whole: NDArray[numpy.bool_]  # such a stack was seen, but for frames that one of the two has
    other_build: NDArray[numpy.bool_]  # it has names that the model never saw
    called_long: NDArray[numpy.bool_]  # surely enough

    @property
    def known(self) -> NDArray[numpy.bool_]:
        answered: NDArray[numpy.bool_] = self.stage >= 0
        return answered

    @property
    def classes(self) -> NDArray[numpy.int64]:
        best: NDArray[numpy.int64] = self.wall.argmax(axis=1)
        return best


def ask(
    model: LifetimeModel, contexts: Contexts, *, stages: int = ALL_STAGES, calibrated: bool = True
) -> Answers:
    """By names and sizes; addresses are those of the profile's own builds, which is not a test of anything."""
    said = model.predict_many(
        contexts.raw,
        contexts.sizes.tolist(),
        stages=stages,
        calibrated=calibrated,
        programs=[names[0] if names else "" for names in contexts.programs],
    )
    return Answers(
        stage=said["stage"].astype(numpy.int64),
        wall=said["wall"].astype(float),
        long=said["long"].astype(float),
        samples=said["samples"].astype(float),
        coverage=said["coverage"].astype(float),
        whole=said["whole"].astype(bool),
        other_build=said["other_build"].astype(bool),
        called_long=said["called_long"].astype(bool),
    )


def predictions(answers: Answers, contexts: Contexts) -> Predictions:
    return Predictions(
        stage=answers.stage.astype(numpy.int8),
        wall=answers.wall,
        long=answers.long,
        samples=answers.samples,
        coverage=answers.coverage,
        whole=answers.whole,
        other_build=answers.other_build,
        true_class=contexts.classes,
        true_long=contexts.is_long,
        decided=contexts.is_decided,
    )


def compare(answers: Answers, contexts: Contexts) -> dict[str, Any]:
    """Shares from 0 to 1. An abstention counts as wrong in accuracy, and as not long."""
    known = answers.known
    off = numpy.abs(answers.classes - contexts.classes)
    right, near = known & (off == 0), known & (off <= 1)
    confusion = numpy.zeros((CLASSES, CLASSES + 1), dtype=numpy.int64)
    numpy.add.at(confusion, (contexts.classes, numpy.where(known, answers.classes, CLASSES)), 1)
    stages = {name: int((answers.stage == number).sum()) for number, name in enumerate(STAGE_NAMES)}
    return {
        "contexts": len(contexts),
        "answered": _share(known),
        "stages": stages,
        "accuracy": _share(right),
        "accuracy_off_by_one": _share(near),
        "accuracy_answered": _share(right[known]),
        "accuracy_by_objects": _share(right, contexts.objects),
        "accuracy_by_objects_off_by_one": _share(near, contexts.objects),
        "confusion": confusion.tolist(),
        "long": compare_long(answers, contexts),
    }


def compare_long(answers: Answers, contexts: Contexts) -> dict[str, Any]:
    """Over the contexts of which it is known whether they are long."""
    decided = contexts.is_decided
    true = contexts.is_long & decided
    called = answers.called_long & decided
    short = decided & ~true
    amounts = contexts.bytes
    both = called & true
    asked = answers.known & decided
    return {
        "decided": int(decided.sum()),
        "true": int(true.sum()),
        "recall": _ratio(both.sum(), true.sum()),
        "precision": _ratio(both.sum(), called.sum()),
        "recall_by_bytes": _ratio(amounts[both].sum(), amounts[true].sum()),
        "precision_by_bytes": _ratio(amounts[both].sum(), amounts[called].sum()),
        "short_called_long": _ratio((called & short).sum(), short.sum()),
        "short_called_long_by_bytes": _ratio(amounts[called & short].sum(), amounts[short].sum()),
        "calibration_error": calibration_error(answers.long[asked], true[asked]),
    }


def calibration_error(said: NDArray[numpy.float64], true: NDArray[numpy.bool_]) -> float | None:
    """The expected one: of ten equal bins of what was said, how far the truth is off, weighted by how many are in it."""
    if not len(said):
        return None
    bins = numpy.minimum((said * 10).astype(int), 9)
    count = numpy.bincount(bins, minlength=10)
    difference = numpy.bincount(bins, said, minlength=10) - numpy.bincount(
        bins, true.astype(float), minlength=10
    )
    return float(numpy.abs(difference).sum() / count.sum())


def _share(chosen: NDArray[Any], weights: NDArray[numpy.float64] | None = None) -> float | None:
    if weights is None:
        return _ratio(chosen.sum(), len(chosen))
    return _ratio(weights[chosen].sum(), weights.sum())


def _ratio(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None
