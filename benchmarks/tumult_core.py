"""Private medians by Tumult Core in its own Python (it needs NumPy 1 and pandas 1): JSON lines in,
JSON lines out.

    {"do": "load", "data": [[...], ...], "epsilon": 1.0, "lower": -10.0, "upper": 10.0}
    {"do": "draw"} -> {"seconds": ..., "draws": [...]}, one median of each dataset

``NoisyQuantile`` on a pandas Series: the measurement that its Spark pipeline applies to each group,
without Spark.
"""

import importlib.metadata
import json
import platform
import sys
import time

import numpy as np
import pandas as pd
from tmlt.core.domains.numpy_domains import NumpyFloatDomain
from tmlt.core.domains.pandas_domains import PandasSeriesDomain
from tmlt.core.measurements.pandas_measurements.series import NoisyQuantile
from tmlt.core.measures import PureDP


def main() -> None:
    series: list[pd.Series] = []
    measurement = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "load":
            series = [pd.Series(np.array(values)) for values in request["data"]]
            measurement = NoisyQuantile(
                PandasSeriesDomain(NumpyFloatDomain(allow_nan=False, allow_inf=False)),
                PureDP(),
                quantile=0.5,
                lower=request["lower"],
                upper=request["upper"],
                epsilon=str(request["epsilon"]),
            )
            packages = ("tmlt.core", "numpy", "pandas")
            answer = {
                "python": platform.python_version(),
                "versions": {p: importlib.metadata.version(p) for p in packages},
            }
        else:
            start = time.perf_counter()
            draws = [float(measurement(values)) for values in series]
            answer = {"seconds": time.perf_counter() - start, "draws": draws}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
