"""Labels of any objects: codes and names say what the cells say, in an order of their own."""

import math

import numpy as np

from dpjax.frames.columns import ArrayColumns, Labels
from dpjax.frames.labels import is_missing, natural_order
from tests.support.properties import given, st

TEXTS = st.text(st.characters(exclude_categories=[]))  # lone surrogates, too
CELLS = st.one_of(st.none(), TEXTS, st.integers(), st.floats(), st.booleans(), st.binary())


def is_shown(text):
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@given(st.lists(TEXTS | st.none()))
def test_texts_are_labels_if_they_are_valid(cells):
    labels = Labels.of(np.arange(len(cells)), cells)
    assert labels.names == sorted({text for text in cells if text is not None and is_shown(text)})
    for cell, code in zip(cells, labels.codes.tolist(), strict=True):
        assert (code == -1) == (cell is None or not is_shown(cell))
        assert code == -1 or labels.names[code] == cell


@given(st.lists(st.floats()))
def test_numbers_are_labels_and_both_zeros_are_one(cells):
    labels = Labels.of(np.arange(len(cells)), cells)
    assert labels.names == sorted({cell for cell in cells if not math.isnan(cell)})
    assert all(math.copysign(1, name) == 1 for name in labels.names if name == 0)
    for cell, code in zip(cells, labels.codes.tolist(), strict=True):
        assert math.isnan(cell) if code == -1 else labels.names[code] == cell


@given(st.lists(CELLS, min_size=1))
def test_a_column_of_objects_is_compared_as_text(cells):
    column = np.empty(len(cells), object)
    column[:] = cells
    labels = ArrayColumns({"g": column}).labels("g")
    for cell, code in zip(cells, labels.codes.tolist(), strict=True):
        gone = is_missing(cell) or not is_shown(str(cell))
        assert code == -1 if gone else labels.names[code] == str(cell)


@given(st.lists(TEXTS | st.floats() | st.integers()))
def test_the_order_of_labels_does_not_depend_on_that_of_rows(cells):
    ordered = sorted(cells, key=natural_order)
    assert list(map(natural_order, ordered)) == sorted(map(natural_order, reversed(cells)))
