"""Many devices: a batch over eight virtual CPU devices against the same work on one, and the same
draws on 1, 2 and 8, bitwise.

python benchmarks/devices.py [--rows 64] [--points 1001] [--draws 10000] [--quick] [--out FILE]

Weak scaling with the cores of one machine fixed: d devices hold d times the datasets of one, and
the ratio is against the same total work unsharded in a process that has one device. Both processes
live at once and are timed in turns. On real devices of its own each, the time would stay level;
here, where all of them share the cores, sharding can only cost.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import harness
from harness import Case, Worker, row

DEVICES = (1, 2, 4, 8)
QUICK_DEVICES = (8,)


def sharded(distribution, rows: int, devices: int):
    """Put the fields that have a row for each dataset on a mesh, split by rows; the others on every
    device.
    """
    mesh = Mesh(np.array(jax.devices()[:devices]), ("batch",))

    def place(field: jax.Array) -> jax.Array:
        spec = PartitionSpec("batch") if field.ndim and field.shape[0] == rows else PartitionSpec()
        return jax.device_put(field, NamedSharding(mesh, spec))

    return jax.tree.map(place, distribution)


def serve() -> None:
    """Answer requests: compile a draw for some datasets and devices, run it, hash its bits."""
    ready = {}
    for line in sys.stdin:
        request = json.loads(line)
        rows, devices, draws = request["rows"], request["devices"], tuple(request["draws"])
        name = (rows, devices, draws, request["relation"], request["points"])
        answer = {}
        if name not in ready:
            case = Case(rows, request["points"], request["relation"])
            distribution = sharded(case.distribution(jnp.asarray(case.data)), rows, devices)
            executable, costs = harness.compiled(
                lambda key, distribution, draws=draws: distribution.sample(key, draws),
                jax.random.key(0),
                distribution,
            )

            def draw(key, distribution=distribution, executable=executable):
                return jax.block_until_ready(executable(key, distribution))

            ready[name] = draw, costs["compile_seconds"]
            draw(jax.random.key(0))
        draw, answer["compile_seconds"] = ready[name]
        key = jax.random.key(request["seed"])
        start = time.perf_counter()
        result = draw(key)
        answer["seconds"] = time.perf_counter() - start
        answer["devices"] = len(result.sharding.device_set)
        if request["hash"]:
            answer["hash"] = hashlib.sha256(
                np.ascontiguousarray(np.asarray(result)).tobytes()
            ).hexdigest()
        print(json.dumps(answer), flush=True)


def worker(devices: int) -> Worker:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return Worker(
        [sys.executable, __file__, "--worker"], {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    )


def same_draws(one: Worker, eight: Worker, args: argparse.Namespace, relation: str) -> list[dict]:
    """Single and repeated draws: equal bits on 1 (in either process), 2, 4 and 8 devices, or 1 and
    8 in a quick run.
    """
    checks = []
    numbers = (1, 8) if args.quick else DEVICES
    for kind, draws in (("single", []), ("repeated", [args.same_draws])):
        request = {
            "rows": args.rows,
            "points": args.points,
            "draws": draws,
            "relation": relation,
            "seed": 5,
            "hash": True,
        }
        alone = one.ask(devices=1, **request)["hash"]
        hashes = {devices: eight.ask(devices=devices, **request)["hash"] for devices in numbers}
        checks.append(
            {
                "contestant": f"dpjax, {kind} draws equal bitwise on "
                f"{', '.join(map(str, numbers))} devices",
                "relation": relation,
                "case": f"{args.rows} x {args.points}",
                "passed": set(hashes.values()) == {alone},
                "devices_that_differ": [
                    devices for devices, found in hashes.items() if found != alone
                ],
            }
        )
    return checks


def weak_scaling(
    one: Worker, eight: Worker, args: argparse.Namespace, relation: str, repeats: int
) -> list[dict]:
    rows = []
    for devices in QUICK_DEVICES if args.quick else DEVICES:
        number = args.rows // DEVICES[-1] * devices
        request = {
            "rows": number,
            "points": args.points,
            "draws": [args.draws],
            "relation": relation,
            "hash": False,
        }
        compiled = eight.ask(devices=devices, seed=0, **request)
        one.ask(devices=1, seed=0, **request)
        times, alone = [], []
        for turn in range(repeats):
            times.append(eight.ask(devices=devices, seed=turn, **request)["seconds"])
            alone.append(one.ask(devices=1, seed=turn, **request)["seconds"])
        ratios = [a / b for a, b in zip(times, alone, strict=True)]
        bar = {"at_most": 1.3} if devices == DEVICES[-1] else None
        common = {"repeats": repeats, "unit": "s a draw"}
        shape, units = f"{number} x {args.points}, {args.draws} draws each", number * args.draws
        alone_name = f"dpjax unsharded, {number} datasets"
        rows += [
            row(
                "weak scaling",
                alone_name,
                relation,
                shape,
                value=statistics.median(alone) / units,
                seconds=harness.spread(alone),
                **common,
            ),
            row(
                "weak scaling",
                f"dpjax on {compiled['devices']} virtual devices",
                relation,
                shape,
                value=statistics.median(times) / units,
                seconds=harness.spread(times),
                compile_seconds=compiled["compile_seconds"],
                ratio=statistics.median(ratios),
                ratio_spread=harness.spread(ratios),
                reference=alone_name,
                bar=bar,
                **common,
            ),
        ]
    return rows


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--rows", type=int, default=64, help="datasets on eight devices; a multiple of 8"
    )
    parser.add_argument("--points", type=int, default=1001)
    parser.add_argument("--draws", type=int, default=10_000, help="draws from each dataset")
    parser.add_argument(
        "--same-draws",
        type=int,
        default=1000,
        help="draws from each dataset whose bits are compared",
    )
    parser.add_argument("--relations", nargs="+", default=["swap"])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve()
        return
    if args.quick:
        args.rows, args.points, args.draws, args.same_draws = 16, 101, 1000, 1000
    one, eight = worker(1), worker(DEVICES[-1])
    rows, checks = [], []
    for relation in args.relations:
        checks += same_draws(one, eight, args, relation)
        rows += weak_scaling(one, eight, args, relation, args.repeats or (1 if args.quick else 9))
    one.close()
    eight.close()
    harness.finish("devices", args, rows, checks)


if __name__ == "__main__":
    main()
