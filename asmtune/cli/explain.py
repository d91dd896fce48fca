"""`asmtune explain`: one config, why it was dropped or won, and its code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.kernel_arguments import (
    Arguments,
    Axes,
    Dtype,
    Grid,
    KernelArguments,
    Only,
    Shape,
    SpaceOption,
)
from asmtune.cli.output import Output, TextForm, TextFormat, print_line, write_result
from asmtune.cli.prune_report import ScorerName
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.trace.run import names_run

if TYPE_CHECKING:
    from asmtune.report.code import Language


def _language(code: str | None, target: Target) -> Language | None:
    """Return the language to show, if any.

    Raises:
        InputError: the target has no such code.
    """
    own: dict[str, Language]
    own = {"amdgcn": "AMDGCN"} if target.backend == "hip" else {"ptx": "PTX", "sass": "SASS"}
    if code is None:
        return None
    if code not in own:
        known = " or ".join(own)
        raise InputError(f"--code {code}: the code of {target.name} ({target.arch}) is {known}")
    return own[code]


def explain(
    kernel: Annotated[str, typer.Argument(help="A kernel's name, a file, or file.py:function.")],
    config: Annotated[
        str | None,
        typer.Option(help="BLOCK_M=128,...,num_warps=8; what is left out is the default's."),
    ] = None,
    target: Annotated[str, typer.Option(help="A device's name or a JSON file.")] = "H200",
    shape: Shape = None,
    dtype: Dtype = None,
    axis: Axes = [],  # noqa: B006 - typer copies it
    arg: Arguments = [],  # noqa: B006
    grid: Grid = None,
    only: Only = None,
    space: SpaceOption = None,
    scorer: ScorerName = "roofline",
    alone: Annotated[bool, typer.Option(help="Do not rank it among the space's configs.")] = False,
    code: Annotated[
        str | None,
        typer.Option(help="Code to show, its hottest loop: ptx, sass, or amdgcn."),
    ] = None,
    save_code: Annotated[
        Path | None,
        typer.Option(help="A folder for the code of every stage: TTIR, TTGIR, LLVM IR, PTX, SASS."),
    ] = None,
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
) -> None:
    """Show one config: why it was dropped or won, what limits it, what to try; --code its loop."""
    machine, settings = load_target(target), Settings.from_environment()
    if names_run(kernel):
        raise InputError(f"{kernel!r} is a run: `asmtune runs show {kernel}` shows it")
    language = _language(code, machine)
    make_scorer(scorer)  # an unknown one is refused before the kernel's file is imported
    arguments = KernelArguments(kernel, shape, dtype, tuple(axis), tuple(arg), grid, only, space)
    loaded = arguments.one(machine)
    from asmtune.report.explain import (
        ExplainRequest,
        explained,
        explained_json,
        explanation,
        named_config,
    )

    default = loaded.space.first(**loaded.problem.shape)
    chosen = default if config is None else named_config(config, default)
    request = ExplainRequest(loaded, machine, settings, chosen, alone=alone)
    result = explained(request, scorer, language)
    notes = (*request.notes, *loaded.notes)
    result = replace(result, report=replace(result.report, notes=(*result.report.notes, *notes)))
    if save_code is not None:
        _save(result.artifact, loaded.problem.name, save_code)
    if form is TextForm.JSON:
        write_result(explained_json(result), output)
        return
    notes_shown = (Text(note, "yellow") for note in result.report.notes)
    write_result(Group(explanation(result), *notes_shown), output)


def _save(artifact: Artifact | None, name: str, folder: Path) -> None:
    """Write the code of every stage of a config into a folder.

    Raises:
        InputError: the config was not compiled, or the folder cannot be written.
    """
    if artifact is None:
        raise InputError(f"--save-code {folder}: the config was not compiled: there is no code")
    texts: dict[str, str | bytes] = {**artifact.outputs}
    is_cuda = "ptx" in texts
    texts["cubin" if is_cuda else "hsaco"] = artifact.cubin
    if is_cuda:
        from asmtune.report.code import disassemble

        sass = disassemble(artifact.cubin)
        if isinstance(sass, Failure):
            print_line(f"asmtune: no SASS is written: {sass.detail}", err=True)
        else:
            texts["sass"] = sass
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stage, text in texts.items():
            data = text if isinstance(text, bytes) else text.encode()
            write_whole(folder / f"{name}.{stage}", data)
    except OSError as error:
        raise InputError(f"--save-code {folder}: {error.strerror or error}") from error
    print_line(f"asmtune: wrote {name}.{{{','.join(texts)}}} to {folder}", err=True)
