# SPDX-License-Identifier: Apache-2.0
"""The page's colours stay apart for readers who see no red, no green or no blue: simulated by the matrices of Machado,
Oliveira and Fernandes (2009) for full deficiency, compared in CIELAB."""

import itertools
import re
from pathlib import Path

import memoir.views.page as page_module
import numpy as np
import pytest

COLOURS = (Path(page_module.__file__).parent / "script" / "colours.js").read_text()
SEEN = {
    "all": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
APART = 14  # CIE76; one step that is just seen is about 2.3


def listed(name):
    return re.findall(r"#[0-9a-f]{6}", re.search(rf"const {name} = (.*?);", COLOURS)[1])


def lab(colours, matrix):
    rgb = np.array([[int(one[k : k + 2], 16) / 255 for k in (1, 3, 5)] for one in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.array(matrix).T, 0, 1)
    xyz = linear @ np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]).T
    scaled = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)


@pytest.mark.parametrize("eyes", SEEN)
def test_no_two_colours_of_the_palette_are_one(eyes):
    colours = [*listed("PALETTE"), *listed("OTHER")]
    assert len(set(colours)) == 9
    seen = lab(colours, SEEN[eyes])
    for one, other in itertools.combinations(range(len(colours)), 2):
        assert np.linalg.norm(seen[one] - seen[other]) > APART, (colours[one], colours[other])


@pytest.mark.parametrize("eyes", SEEN)
def test_the_ramp_of_sizes_gets_darker_step_by_step(eyes):
    lightness = lab(listed("RAMP"), SEEN[eyes])[:, 0]
    assert (np.diff(lightness) < -2).all(), lightness
