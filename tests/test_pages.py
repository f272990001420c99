"""The pages of reference that pdoc makes of the docstrings: each public name has its place, and
each reference leads somewhere.
"""

import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import dpjax

SCRIPT = pathlib.Path(__file__).parents[1] / ".ci" / "pages.py"
ROLE = re.compile(r":(?:func|class|meth|attr|data|mod|exc):`~?([^`]+)`")


def public():
    """Every public name and what it is."""
    for name in dpjax.__all__:
        yield f"dpjax.{name}", getattr(dpjax, name)
    for room in dpjax._NAMES:
        package = importlib.import_module(f"dpjax.{room}")
        for name in package.__all__:
            yield f"dpjax.{room}.{name}", getattr(package, name)


def texts(value):
    """The docstrings of something public, and of its public members."""
    yield inspect.getdoc(value) or ""
    if inspect.isclass(value):
        for name, member in vars(value).items():
            if not name.startswith("_"):
                yield inspect.getdoc(member) or ""


def resolves(reference, value):
    """Whether a reference in the docstring of something names what is there: from the top, its
    package, its module or its class.
    """
    parts = reference.split(".")
    module = inspect.getmodule(value)
    for start in (value, module, sys.modules.get(getattr(module, "__package__", "")), dpjax):
        found = start
        for part in parts[1:] if parts[0] == "dpjax" and start is dpjax else parts:
            found = getattr(found, part, None)
        if found is not None:
            return True
    try:
        importlib.import_module(reference)
    except ImportError:
        return False
    return True


def broken():
    return {
        (name, role)
        for name, value in public()
        for text in texts(value)
        for role in ROLE.findall(text)
        if not resolves(role, value)
    }


def test_references_of_public_docstrings_lead_somewhere():
    assert broken() == set()
    found = [role for _, value in public() for text in texts(value) for role in ROLE.findall(text)]
    assert len(found) > 100


def test_control_a_reference_to_nothing_is_found():
    assert not resolves("dpjax.no_such_name", dpjax.median)
    assert not resolves("no_such_name", dpjax.median)
    assert resolves("dpjax.median", dpjax.Rounded)
    assert resolves("sample", dpjax.Rounded)


def test_references_do_not_lead_into_private_modules():
    private = {
        (name, role)
        for name, value in public()
        for text in texts(value)
        for role in ROLE.findall(text)
        if "._" in role
    }
    assert private == set()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("pages")
    made = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return folder, made.stderr


def test_each_public_name_has_a_page(pages):
    folder, warnings = pages
    assert "does not resolve" not in warnings
    missing = []
    for name, value in public():
        if inspect.ismodule(value):
            continue
        package, _, last = name.rpartition(".")
        page = pathlib.Path(folder, *package.split(".")).with_suffix(".html").read_text()
        if f'id="{last}"' not in page:
            missing.append(name)
    assert missing == []
