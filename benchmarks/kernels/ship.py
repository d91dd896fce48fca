"""Writing of the tuned configs of a store into `cache/`, for an H200 or another device.

    python -m benchmarks.kernels.ship [KERNEL ...] [--device NAME] [--store FILE] [--output FOLDER]

Needs no GPU. It writes those records of the store and of the folder whose
key a kernel's public function launches at one of the rows of `benchmarks.kernels`, or a kernel of
ours that may be called in its place, and whose source and space are the kernel's own today. What is
stale goes, and so does a record without alternatives where the vendor's function was faster: its
key is tuned at its first launch, with the vendor. Prints, for each kernel, how many keys it
launches and how many of them are shipped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import interchange
from asmtune.store.codec import key_digest
from asmtune.store.database import Store
from asmtune.store.interchange import abridged
from asmtune.store.lookup import differences
from benchmarks.kernels.identities import DEVICE, OURS, Identity, identities
from benchmarks.kernels.plan import Place, Plan
from benchmarks.kernels.table import FILE
from tests.kernels.accuracy import KERNELS, module_of

CACHE = Path(__file__).parents[2] / "cache"
FASTEST = 6
"""Timings of each record that are kept: what a reader needs to see by how much the winner leads."""

AS_FAST = 0.97
"""Least speed over the vendor's of a config that is as fast, but for noise."""

TABLES = {DEVICE: FILE, "NVIDIA H100 80GB HBM3": FILE.with_name("h100_kernels.json")}
"""Files with the speeds of kernels over the vendor's functions, by device."""


def launched(name: str, plan: Plan, device: str) -> dict[str, Identity]:
    """List what a kernel's public function may launch at the rows of a plan, by key digest.

    That is also what another kernel of ours launches in its place, as the Gluon kernels do, and
    what is launched without those.
    """
    ways: list[dict[str, bool]] = [{}]
    if "gluon" in signature(getattr(module_of(name), name)).parameters:
        ways.append({"gluon": False})
    launches = (
        launch
        for place in plan.places([name])
        for way in ways
        for launch in identities(place, device, inside=OURS, **way)
    )
    return {key_digest(key): (key, expected) for key, expected in launches}


def slower(name: str, device: str) -> set[str]:
    """List the keys at whose rows a kernel alone is slower than its vendor, by digest.

    A further competitor of a row counts as well if an alternative has its name. A kernel without
    alternatives has none: tuned anew, it would be as slow.
    """
    tuner = getattr(module_of(name), "_tuned", None)
    alternatives = tuner.options.choices.get("alternatives") if tuner is not None else None
    if not alternatives or device not in TABLES:
        return set()
    rows = json.loads(TABLES[device].read_text())["rows"]
    factors = [f"over_{who}" for who in ("vendor", *alternatives)]
    places = [
        Place.of(row)
        for row in rows
        if row["kernel"] == name and min(row.get(one, 1.0) for one in factors) < AS_FAST
    ]
    return {key_digest(key) for place in places for key, _ in identities(place, device)}


def knows_alternatives(record: TuneRecord) -> bool:
    """Return whether functions besides the kernel were candidates."""
    configs = [timing.config for timing in record.measurements]
    configs += [config for config, _ in record.failures]
    return any(config.alternative is not None for config in configs)


def current(
    records: Iterable[TuneRecord], wanted: Mapping[str, Identity], beaten: Collection[str] = ()
) -> Iterator[TuneRecord]:
    """Keep the valid records of wanted keys, the first of each key.

    For keys in `beaten`, keep only records that know alternatives.
    """
    met: set[str] = set()
    for record in records:
        digest = key_digest(record.key)
        if digest not in wanted or digest in met:
            continue
        if digest in beaten and not knows_alternatives(record):
            continue
        if not differences(record.provenance, wanted[digest][1]):
            met.add(digest)
            yield record


def file_of(name: str, folder: Path = CACHE, device: str = DEVICE) -> Path:
    """Give the path of a kernel's records of a device."""
    return folder / f"{name}-{load_target(device, own=False).name.lower()}.json"


def ship(
    name: str, tuned: Iterable[TuneRecord], folder: Path, device: str = DEVICE
) -> tuple[int, int]:
    """Write a kernel's file; return how many keys it launches, and how many of them are shipped."""
    file = file_of(name, folder, device)
    shipped = interchange.read(file) if file.exists() else ()
    wanted = launched(name, Plan(), device)
    records = current([*tuned, *shipped], wanted, slower(name, device))
    fresh = [abridged(record, FASTEST) for record in records]
    if fresh:
        interchange.write(file, interchange.in_order(fresh))
    else:
        file.unlink(missing_ok=True)
    return len(wanted), len(fresh)


def records_of(where: str, device: str) -> Sequence[TuneRecord]:
    """Read all records of a device in a store, or all of an exported file."""
    if where.endswith(".json"):
        return interchange.read(Path(where))
    with Store.open(where) as store:
        return store.records(None, device)


def main() -> None:
    """Ship the records of a store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(KERNELS)}")
    parser.add_argument(
        "--store",
        default=Settings.from_environment().store_where,
        help="a store, or a .json that `asmtune export` has written of one",
    )
    parser.add_argument("--device", default=DEVICE, help="its name, as its driver gives it")
    parser.add_argument("--output", type=Path, default=CACHE)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    tuned = records_of(options.store, options.device)
    for name in options.kernels or KERNELS:
        keys, shipped = ship(name, tuned, options.output, options.device)
        print(f"{name:<24}{shipped:>4} of {keys:>3} keys shipped", flush=True)


if __name__ == "__main__":
    main()
