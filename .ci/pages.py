"""Write the pages of reference into a folder, from the docstrings of everything public.

python .ci/pages.py FOLDER

It fails where a reference leads nowhere or into a private module, a public name has no page, or
pdoc warns.
"""

import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
import typing
import warnings
from collections.abc import Iterator

import pdoc

import dpjax

ROOMS = [name for name in dir(dpjax) if inspect.ismodule(getattr(dpjax, name))]
PACKAGES = [dpjax, *(importlib.import_module(f"dpjax.{room}") for room in ROOMS)]
ROLE = re.compile(r":(?:func|class|meth|attr|data|mod|exc):`~?([^`]+)`")


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


def references(value: object) -> Iterator[str]:
    """What the docstrings of something public and of its public members refer to."""
    members = vars(value).items() if inspect.isclass(value) else ()
    for each in (value, *(member for name, member in members if not name.startswith("_"))):
        yield from ROLE.findall(inspect.getdoc(each) or "")


def leads_somewhere(reference: str, value: object) -> bool:
    """Whether a reference in the docstring of something names what is there."""
    module = inspect.getmodule(value)
    starts = [value, module, sys.modules.get(getattr(module, "__package__", "")), dpjax]
    for start in starts:
        for name in reference.split("."):
            start = getattr(start, name, None)
        if start is not None:
            return True
    try:
        return pkgutil.resolve_name(reference) is not None
    except (AttributeError, ImportError):
        return False


def know_fields(value: type) -> None:
    """Resolve types of fields that pdoc cannot: of named tuples, and of a base class elsewhere."""
    try:
        hints = typing.get_type_hints(value)
    except NameError:  # of a module that only type checkers import: pdoc reads these
        return
    for method in (value.__init__, value.__new__):
        known = getattr(method, "__annotations__", {})
        known.update({name: hints[name] for name in known.keys() & hints.keys()})


def faults(folder: pathlib.Path) -> Iterator[str]:
    """References that lead nowhere, and names without a page."""
    for package in PACKAGES:
        page = folder.joinpath(*package.__name__.split(".")).with_suffix(".html").read_text()
        for name in package.__all__:
            value = getattr(package, name)
            if not inspect.ismodule(value) and f'id="{name}"' not in page:
                yield f"{package.__name__}.{name} is on no page"
            for reference in references(value):
                if "._" in reference or not leads_somewhere(reference, value):
                    yield f"{package.__name__}.{name} refers to {reference}"


# Names that a package imports when they are asked for are put into it: pdoc looks for what is
# there.
for package in PACKAGES:
    public = {name: getattr(package, name) for name in package.__all__}
    vars(package).update(public)
    for each in filter(inspect.isclass, public.values()):
        know_fields(each)
dpjax.__doc__ = in_markdown(dpjax.__doc__ or "")
if leads_somewhere("dpjax.no_such_name", dpjax.median):
    sys.exit("the check sees nothing")

output = pathlib.Path(sys.argv[1])
pdoc.render.configure(docformat="google", show_source=False, math=True)
warnings.filterwarnings("error", module="pdoc")
rooms = [f"dpjax.{room}" for room in ROOMS if room not in dpjax.__all__]
pdoc.pdoc("dpjax", *rooms, output_directory=output)
sys.exit("\n".join(faults(output)) or None)
