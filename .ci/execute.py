"""Run notebooks, two at once, each from its first cell to its last.

An error in a cell ends its notebook, and is shown.

python .ci/execute.py NOTEBOOK ...

One process starts all kernels, so that none is given a port that was promised to another.
"""

import asyncio
import pathlib
import sys
import time

import nbformat
from nbclient import NotebookClient


async def execute(path: pathlib.Path, free: asyncio.Semaphore) -> None:
    """Run one notebook as soon as a place is free, and say how long it took."""
    async with free:
        start, notebook = time.monotonic(), nbformat.read(path, as_version=4)
        await NotebookClient(
            notebook, resources={"metadata": {"path": str(path.parent)}}
        ).async_execute()
        print(f"{path.name}: {time.monotonic() - start:.0f} s", flush=True)


async def main() -> int:
    """Run all of them; the status for the shell."""
    free = asyncio.Semaphore(2)
    ends = await asyncio.gather(
        *(execute(path, free) for path in map(pathlib.Path, sys.argv[1:])), return_exceptions=True
    )
    errors = {path: end for path, end in zip(sys.argv[1:], ends, strict=True) if end is not None}
    for path, error in errors.items():
        print(f"{path}: {error}", file=sys.stderr)
    return 1 if errors else 0


sys.exit(asyncio.run(main()))
