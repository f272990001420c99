"""Write the pages of reference into a folder, from the docstrings of everything public.

python .ci/pages.py FOLDER
"""

import importlib
import pathlib
import re
import sys

import pdoc

import dpjax

ROOMS = [f"dpjax.{room}" for room in dpjax._NAMES]


def in_markdown(text: str) -> str:
    """Tables as they stand in the docstring, and groups as lists with a heading."""
    text = re.sub(
        r"^(=[= ]+\n(?:.+\n)+?=[= "
        r"]+\n(?:.+\n)+?=[= ]+)$",
        r"```\n\1\n```",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"^([A-Z].*)\n(?=    )", r"\n**\1**\n\n", text, flags=re.MULTILINE)
    return re.sub(r"^    ([a-z][\w ]+): ", r"  * *\1*: ", text, flags=re.MULTILINE)


# Names that a package imports when they are asked for are put into it: pdoc looks for what is
# there.
for package in (dpjax, *map(importlib.import_module, ROOMS)):
    vars(package).update({name: getattr(package, name) for name in package.__all__})
dpjax.__doc__ = in_markdown(dpjax.__doc__ or "")

pdoc.render.configure(docformat="google", show_source=False, math=True)
pdoc.pdoc("dpjax", *ROOMS, output_directory=pathlib.Path(sys.argv[1]))
