"""Progress of a long run: to a function of the caller, to tqdm where it is installed, or to a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

_SECONDS = 5.0  # between two lines


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        done: draws of each row so far, those of a resumed run included.
        total: draws of each row in all.
        seconds: since this call began its first chunk.
    """

    done: int
    total: int
    seconds: float


Reporter = Callable[[Progress], object]


@contextmanager
def reporting(progress: Reporter | Literal["auto"] | None, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """Give a function that takes the number of draws done, for as long as the run lasts."""
    start = time.monotonic()

    def tell(reporter: Reporter) -> Callable[[int], None]:
        return lambda done: (reporter(Progress(done, total, time.monotonic() - start)), None)[1]

    if progress is None:
        yield lambda done: None
    elif callable(progress):
        yield tell(progress)
    elif find_spec("tqdm") is not None:
        with import_module("tqdm").tqdm(total=total, initial=done, unit="draw", unit_scale=True) as bar:
            yield lambda done: (bar.update(done - bar.n), None)[1]
    else:
        yield tell(_Lines())


class _Lines:
    """Write a line to stderr every few seconds, and one at the end of a run that needed any."""

    def __init__(self) -> None:
        self.written = 0.0

    def __call__(self, progress: Progress) -> None:
        due = progress.seconds - self.written >= _SECONDS
        if due or (self.written > 0 and progress.done == progress.total):
            self.written = progress.seconds
            share = 100 * progress.done / progress.total
            print(f"{progress.done:,} of {progress.total:,} draws ({share:.1f} %), {progress.seconds:.0f} s", file=sys.stderr)
