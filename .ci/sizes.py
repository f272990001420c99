"""The ratchet: code tokens of every folder of the library, of tests and benchmarks, against caps.

python3 .ci/sizes.py

Comments, line ends, indents and docstrings do not count. The caps are in ``sizes.json`` and only
fall: whoever makes a folder smaller lowers its cap in the same change.
"""

import ast
import io
import json
import pathlib
import sys
import tokenize

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
NO_CODE |= {tokenize.ENCODING, tokenize.ENDMARKER}


def tokens(path: pathlib.Path) -> int:
    """Code tokens of a file; strings that are statements are documentation."""
    source, documentation = path.read_bytes(), set()
    for node in ast.walk(ast.parse(source)):
        for child in body if isinstance(body := getattr(node, "body", None), list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                documentation.add((child.value.lineno, child.value.col_offset))
    found = tokenize.tokenize(io.BytesIO(source).readline)
    kept = [token for token in found if token.type not in NO_CODE]
    return sum(t.type != tokenize.STRING or t.start not in documentation for t in kept)


def folder(path: pathlib.Path) -> str:
    """The folder of a file that has a cap: one of the library's, or all of another."""
    return "/".join(path.parts[:2]) if path.parts[0] == "dpjax" else path.parts[0]


root = pathlib.Path(__file__).parent.parent
caps = json.loads((root / ".ci/sizes.json").read_text())["tokens"]
sizes = dict.fromkeys(caps, 0)
for top in ("dpjax", "tests", "benchmarks"):
    for file in (root / top).rglob("*.py"):
        name = folder(file.relative_to(root))
        name = "dpjax" if name.endswith(".py") else name  # the library's top
        sizes[name] = sizes.get(name, 0) + tokens(file)
for name, size in sorted(sizes.items()):
    above = "  above its cap" * (size > caps.get(name, 0))
    print(f"{name:24}{size:10,} of {caps.get(name, 0):10,}{above}")
library = sum(size for name, size in sizes.items() if name.startswith("dpjax"))
print(f"{'the whole library':24}{library:10,}")
sys.exit(any(size > caps.get(name, 0) for name, size in sizes.items()))
