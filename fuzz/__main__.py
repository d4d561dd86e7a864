"""``python -m fuzz --seconds 3600 --seed 1``: every fuzzer in turn, what each says at its end, and the inputs in all.

Each runs in a process of its own, or in several side by side with a seed each. Where the time is short of what a
fuzzer needs to begin, it takes that.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

SHARES = {
    "decoders": 0.4,
    "logins": 0.05,
    "security_apis": 0.05,
    "records": 0.1,
    "spark_decoder": 0.1,
    "live_socket": 0.1,
    "groups": 0.1,
    "admin_http": 0.1,
}
"""Of the time that all of them have; most for the decoders, which take inputs a hundred times as fast as a running
broker."""

INPUTS = re.compile(r"\b(\d+) (?:(?:frames|batches|logs) tried|(?:pieces|requests) sent)\b")


def run(fuzzer: str, seconds: float, seed: int) -> tuple[int, bool]:
    """Run one fuzzer and show what it prints; return how many inputs it says that it took, and whether all was well."""
    command = [sys.executable, "-m", f"fuzz.{fuzzer}", "--seconds", f"{seconds:.0f}", "--seed", str(seed)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(f"{fuzzer}: {finished.stdout.rstrip()}", flush=True)
    counted = INPUTS.search(finished.stdout.rpartition("\n")[0].rpartition("\n")[2])
    return (0 if counted is None else int(counted[1])), finished.returncode == 0 and counted is not None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Run every fuzzer in turn.")
    parser.add_argument("--seconds", type=float, default=600, help="how long to go on, all together (default: 600)")
    parser.add_argument("--seed", type=int, default=0, help="where the randomness starts (default: 0)")
    parser.add_argument("--processes", type=int, default=1, help="of each fuzzer, with a seed each from SEED on (1)")
    parser.add_argument("--only", action="append", choices=list(SHARES), help="this one; may be repeated (all)")
    arguments = parser.parse_args()
    shares = {name: share for name, share in SHARES.items() if name in (arguments.only or SHARES)}
    inputs, failed = 0, []
    seeds = range(arguments.seed, arguments.seed + arguments.processes)
    with ThreadPoolExecutor(len(seeds)) as side_by_side:
        for fuzzer, share in shares.items():
            seconds = max(1, share / sum(shares.values()) * arguments.seconds)
            for taken, is_well in side_by_side.map(partial(run, fuzzer, seconds), seeds):
                inputs += taken
                if not is_well and fuzzer not in failed:
                    failed.append(fuzzer)
    print(f"{inputs:,} inputs, {'no findings' if not failed else 'findings of ' + ', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
