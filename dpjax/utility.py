"""The old name of ``dpjax.bounds``, until version 0.3."""

import warnings

from dpjax.bounds import *  # noqa: F403

warnings.warn("dpjax.utility is now dpjax.bounds.", DeprecationWarning, stacklevel=2)
