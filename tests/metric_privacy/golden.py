"""Golden numbers of the thresholds, with their provenance inside."""

import json
import pathlib

import numpy as np

THRESHOLDS = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "D_thresholds.json").read_text()
)
UNIVERSE = np.random.default_rng(2020).uniform(0, 100, (50, 2))
