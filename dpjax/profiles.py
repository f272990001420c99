"""The old name of ``dpjax.statistics`` and ``dpjax.sensitivity``, until version 0.3."""

import warnings

from dpjax.sensitivity import *  # noqa: F403
from dpjax.statistics import *  # noqa: F403

warnings.warn("dpjax.profiles is now dpjax.statistics and dpjax.sensitivity.", DeprecationWarning, stacklevel=2)
