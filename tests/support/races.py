"""Two charges of one budget, of which the second begins in the middle of the first."""

import contextlib
import threading

from dpjax.accounting import BudgetExceeded


def admitted_of_two(charge, pause):
    """A function that returns how many of two charges were admitted, and one to be called between
    the look at what is left and the first charge.

    Args:
        charge: makes a charge; of whether it is the first.
        pause: of the thread of the second charge, which has begun.
    """
    done = []

    def spend(first):
        with contextlib.suppress(BudgetExceeded):
            charge(first)
            done.append(first)

    second = threading.Thread(target=spend, args=(False,))

    def between():
        second.start()
        pause(second)

    def admitted():
        spend(True)
        second.join()
        return len(done)

    return admitted, between
