"""What a draw costs."""

from dpjax.accounting.conversions import zcdp_of
from dpjax.accounting.guarantees import Guarantee

__all__ = ["Guarantee", "zcdp_of"]
