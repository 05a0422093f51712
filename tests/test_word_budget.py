# SPDX-License-Identifier: Apache-2.0
"""README and docs stay as short as somebody can read, and so do their sentences."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("count_words", ROOT / "docs" / "count_words.py")
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)


def test_all_pages_together_keep_to_the_budget():
    """What was tried belongs into the notebook, which counts for nothing here."""
    count = sum(program.words(page.read_text()) for page in program.pages())
    assert count <= program.BUDGET, f"{count:,}: docs/count_words.py says where they are"


def test_a_sentence_is_short():
    lengths = [program.words(one) for page in program.pages() for one in program.sentences(page.read_text())]
    mean = sum(lengths) / len(lengths)
    assert mean <= program.SENTENCE, f"{mean:.2f}: docs/count_words.py --long says which are long"


def test_what_counts():
    assert program.words("a | b | 1.5 `c` -- -") == 4
    text = "# Title here too\n\nOne two three. Four five six\n(`a b`)! Seven: it goes on.\n\n| a | b | c |\n"
    assert [program.words(one) for one in program.sentences(text)] == [3, 4, 4]
