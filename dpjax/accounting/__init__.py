"""What a draw costs."""

from dpjax.accounting.guarantees import Guarantee

__all__ = ["Guarantee"]
