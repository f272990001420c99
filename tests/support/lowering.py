"""What a program would do on a GPU that it should not, read from its StableHLO text."""

import re

# Sizes are those of static shapes
CONSTANT = re.compile(r"^\s*(%\w+) = stablehlo\.(?:constant|get_dimension_size) ")
CONVERTED = re.compile(r"^\s*(%\w+) = stablehlo\.convert (%\w+) ")
HIGHEST = "precision = [HIGHEST, HIGHEST]"


def host_calls(text):
    """Custom calls that leave the device."""
    targets = re.findall(r"stablehlo\.custom_call @(\w+)", text)
    return [target for target in targets if target == "dpjax_host_call" or "callback" in target]


def rounded_products(text):
    """Products of matrices of floats that the device may compute with fewer digits."""
    lines = (line.strip() for line in text.splitlines() if "stablehlo.dot_general" in line)
    return [line for line in lines if re.search(r"[x<]f(32|64)>", line) and HIGHEST not in line]


def traced_loops(text):
    """Loops of which the program does not say how many turns they take: for each turn the host
    would read whether it is the last.

    How many turns a loop takes is known where its condition is that one of its variables is less
    than a constant, and where that variable starts from a constant and grows by one in each turn.
    """
    found, lines, constants = [], text.splitlines(), set()
    for at, line in enumerate(lines):
        if re.match(r"\s*func\.func ", line):
            constants = set()
        if (constant := CONSTANT.match(line)) is not None:
            constants.add(constant[1])
        if (converted := CONVERTED.match(line)) is not None and converted[2] in constants:
            constants.add(converted[1])
        if "stablehlo.while(" not in line:
            continue
        indent = line[: len(line) - len(line.lstrip())]
        condition = _block(lines, at + 1, f"{indent}}} do {{")
        body = _block(lines, at + 1 + len(condition) + 1, f"{indent}}}")
        if not _counted(line, condition[1:], body, constants):
            found.append("\n".join(part.strip() for part in [line, *condition]))
    return found


def turns(jaxpr):
    """How many turns the loops of a program take one after the other; one for a loop of which the
    program does not say.
    """
    number = 0
    for equation in jaxpr.eqns:
        inner = [turns(part) for part in _programs(list(equation.params.values()))]
        if equation.primitive.name == "scan":
            number += equation.params["length"] * max(1, sum(inner))
        elif equation.primitive.name == "while":
            number += max(1, sum(inner))
        elif equation.primitive.name == "cond":
            number += max(inner, default=0)
        else:
            number += sum(inner)
    return number


def _programs(parameters):
    for part in parameters:
        if isinstance(part, (list, tuple)):
            yield from _programs(part)
        elif hasattr(part, "eqns"):
            yield part
        elif hasattr(part, "jaxpr"):
            yield part.jaxpr


def _block(lines, start, end):
    stop = next(at for at in range(start, len(lines)) if lines[at].startswith(end))
    return lines[start:stop]


def _counted(line, condition, body, constants):
    starts = dict(re.findall(r"(%iterArg\w*) = (%[\w#]+)", line))
    constants = constants | {
        found[1] for found in map(CONSTANT.match, [*condition, *body]) if found is not None
    }
    rest = [line for line in condition if CONSTANT.match(line) is None]
    compared = (
        re.search(
            r"= stablehlo\.compare\s+LT, (%iterArg\w*), "
            r"(%\w+)[ ,]",
            rest[0],
        )
        if len(rest) == 2
        else None
    )
    if compared is None or compared[2] not in constants or starts.get(compared[1]) not in constants:
        return False
    place = list(starts).index(compared[1])
    following = re.search(r"stablehlo\.return (.*?) :", body[-1])[1].split(", ")[place]
    grows = re.compile(
        rf"\s*{re.escape(following)} = stablehlo\.add "
        rf"{re.escape(compared[1])}, (%\w+) "
    )
    return any((added := grows.match(line)) is not None and added[1] in constants for line in body)
