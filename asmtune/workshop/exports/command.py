"""`asmtune export` and `asmtune import`: configs for other programs, and configs from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.base.json_codec import parse_json
from asmtune.base.limited_read import read_limited
from asmtune.base.settings import Settings
from asmtune.base.text import did_you_mean
from asmtune.cli.cache import AsJson, Device, Kernel, Where, existing_records, place, print_count
from asmtune.cli.output import check_destinations, is_stdout, print_line, write_result
from asmtune.core.inputs.shapes import parse_assignments, unique
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import interchange
from asmtune.store.codec import key_digest
from asmtune.store.interchange import abridged
from asmtune.store.seeds import KeyedConfigs, SeedFolder, configs_of
from asmtune.store.shipped import shipped_records
from asmtune.workshop.exports.moe import Engine, MoeMap, moe_files, read_moe
from asmtune.workshop.exports.python_files import python_file


class Format(StrEnum):
    """The formats of an export."""

    PYTHON = "python"
    JSON = "json"
    VLLM = "vllm-moe"
    SGLANG = "sglang-moe"


_ENGINES: Final[Mapping[Format, Engine]] = {Format.VLLM: "vllm", Format.SGLANG: "sglang"}

Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="NAME=VALUE",
        help="For fused_moe files: what M, E, N, dtype, block_shape or a config's value is in the "
        "kernel, such as M=num_tokens, N=N/2, E=8, dtype=fp8_w8a8; repeatable.",
    ),
]


def export(
    to: Annotated[
        Path,
        typer.Argument(
            help="File to write, replaced if it exists, or - for stdout; for fused_moe files, "
            "their folder."
        ),
    ],
    form: Annotated[Format, typer.Option("--format", help="What reads it.")],
    kernel: Kernel = None,
    device: Device = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only keys with this value; repeatable."),
    ] = None,
    fastest: Annotated[
        int, typer.Option(min=1, help="Number of configs to write of each key, the winner first.")
    ] = 1,
    names: Map = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Also what comes with asmtune and is not stored.")
    ] = False,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Write tuned configs in a form that other programs use without asmtune."""
    moe = form in _ENGINES
    if names and not moe:
        raise InputError(f"--map is for vllm-moe and sglang-moe, and the format is {form}")
    if moe and fastest != 1:
        raise InputError(f"--fastest: files of {form} have one config for a number of tokens")
    if moe and (is_stdout(to) or (to.exists() and not to.is_dir())):
        raise InputError(f"TO {to}: is no folder; name the folder for the files of {form}")
    records = _selected(kernel, device, only or (), where, shipped=shipped)
    if moe:
        texts = moe_files(_unedited(records), MoeMap.parse(names or ()), _ENGINES[form])
        files = {to / path: text for path, text in texts.items()}
    else:
        if not is_stdout(to):
            check_destinations([("TO", to)])
        files = {to: _text(form, records, fastest)}
    _write_all(files)
    names_of_files = ", ".join(map(str, files))
    print_count(
        "exported", len(records), as_json, f"records to {names_of_files}", err=is_stdout(to)
    )


def _text(form: Format, records: list[TuneRecord], fastest: int) -> str:
    """Write one file of all records."""
    if form is Format.JSON:
        return interchange.dumps(abridged(record, fastest) for record in records)
    entries = (configs_of(record, fastest) for record in _unedited(records))
    return python_file(entry for entry in entries if entry is not None)


def _unedited(records: list[TuneRecord]) -> list[TuneRecord]:
    """Return the records whose winners are whole without a file of hand-edited IR."""
    unedited = [record for record in records if record.winner.ir_override is None]
    if not unedited:
        raise InputError("every winner names a file of hand-edited IR, which no export carries")
    if len(unedited) < len(records):
        left = len(records) - len(unedited)
        print_line(f"{left} left out: their winners name files of hand-edited IR", err=True)
    return unedited


def _selected(
    kernel: str | None,
    device: str | None,
    only: Iterable[str],
    where: str | None,
    *,
    shipped: bool,
) -> list[TuneRecord]:
    """Return the records to export, a key once: stored, else shipped.

    Raises:
        InputError: there is none, or `only` names what no key has.
    """
    records = existing_records(kernel, device, where)
    if shipped:
        stored = {key_digest(record.key) for record in records}
        records += [
            record
            for record in shipped_records()
            if kernel in (None, record.key.kernel)
            and device in (None, record.key.device)
            and key_digest(record.key) not in stored
        ]
    chosen = unique(
        "--only", (pair for o in only for pair in parse_assignments(o, "--only").items())
    )
    known = {name for r in records for name in (*r.key.shape, *r.key.dtypes)}
    for name in chosen:
        if records and name not in known:
            hint = did_you_mean(name, known)
            raise InputError(
                f"--only {name}: no key has it; they have {', '.join(sorted(known))}{hint}"
            )
    records = [
        record
        for record in records
        if all(_value(record, name) == value for name, value in chosen.items())
    ]
    if not records:
        raise InputError(
            f"store {place(where)}: no record of kernel {kernel or '(any)'} on device "
            f"{device or '(any)'}{' with ' if chosen else ''}"
            f"{' '.join(f'{name}={value}' for name, value in chosen.items())}; "
            "`asmtune cache ls` lists them, and --shipped takes those that come with asmtune"
        )
    return records


def _value(record: TuneRecord, name: str) -> Any:
    return {**record.key.dtypes, **record.key.shape}.get(name)


def _write_all(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        if is_stdout(path):
            write_result(text.rstrip("\n"))
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode())
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}; name another place") from error


def import_seeds(
    files: Annotated[
        list[Path],
        typer.Argument(help="JSON that `export` writes, or fused_moe files of vLLM or SGLang."),
    ],
    kernel: Annotated[
        str | None,
        typer.Option(help="The kernel that fused_moe files are for, as `cache ls` names it."),
    ] = None,
    names: Map = None,
    as_json: AsJson = False,
) -> None:
    """Read configs as seeds: a search times them first, and no launch uses them untimed."""
    mapping = MoeMap.parse(names or ())
    entries = [entry for file in files for entry in _read(file, kernel, mapping)]
    count = SeedFolder(Settings.from_environment().seeds_dir).add(entries)
    kernels = len({entry.key.kernel for entry in entries})
    seeds = "seed" if count == 1 else "seeds"
    owners = "kernel" if kernels == 1 else "kernels"
    print_count("imported", count, as_json, f"{seeds} of {kernels} {owners}")


def _read(path: Path, kernel: str | None, names: MoeMap) -> list[KeyedConfigs]:
    """Read the entries of one file, whichever format it has.

    Raises:
        InputError: it cannot be read, or is of no format; names the file.
    """
    try:
        text = read_limited(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    try:
        try:
            document = parse_json(text)
        except ValueError as error:
            raise InputError(f"not JSON ({error})") from error
        if isinstance(document, dict) and "format" in document:
            records = interchange.loads(text, "records")
            entries = (configs_of(record, len(record.measurements)) for record in records)
            return [entry for entry in entries if entry is not None]
        return read_moe(path.name, document, kernel, names)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
