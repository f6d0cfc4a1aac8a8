"""Names of regions in sentences: where one would read as words of the sentence, it stands in quotes."""

from __future__ import annotations

from boundby.document.blocks import in_region
from boundby.model.units import place


def test_a_name_of_several_words_stands_in_quotes() -> None:
    assert place(("epoch", "train", "data copy in *")) == '"train/data copy in *"'
    assert in_region(("data copy in *",)) == ' in "data copy in *"'


def test_a_name_of_one_word_stands_as_it_is() -> None:
    assert place(("train", "forward")) == "train/forward"
    assert (in_region(("train", "forward")), in_region(())) == (" in train/forward", "")
