"""`asmtune new`: writes a kernel module, its test and its benchmark, which run as written."""

from __future__ import annotations

import importlib.util
import keyword
import re
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template
from typing import Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.core.dtypes import TORCH_NAMES, canonical_dtype
from asmtune.core.inputs.shapes import unique
from asmtune.ir.ttir.mlir_types import split_list

_DTYPES: Final = ("fp32", "fp16", "bf16")
_SIZES: Final = {1: (1 << 24,), 2: (4096, 4096), 3: (16, 1024, 2048), 4: (4, 16, 512, 1024)}
_OPTIONS: Final = frozenset(
    ("num_warps", "num_stages", "num_ctas", "maxnreg", "grid", "warmup", "debug", "self")
)
"""Names that Triton takes at a launch, beside the kernel's parameters."""
_INPUT: Final = re.compile(r"(\w+)\s*:\s*(\([^()]*\))\s*([\w.]+)")
_FORM: Final = '"x: (M, N) bf16, w: (N,) bf16"'


@dataclass(frozen=True)
class KernelInput:
    """A tensor of a signature: its name, the names of its sizes, and its dtype."""

    name: str
    sizes: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class KernelSignature:
    """The signature of a new kernel.

    Attributes:
        name: of the kernel and its files.
        inputs: in order; the first gives the output's dtype.
        output: sizes of the output.
        over: sizes that the kernel runs over: the output's, and the last one that it sums.
    """

    name: str
    inputs: tuple[KernelInput, ...]
    output: tuple[str, ...]
    over: tuple[str, ...]

    @property
    def sums_rows(self) -> bool:
        """Return whether it sums the last size."""
        return self.over != self.output

    @classmethod
    def parse(cls, name: str, inputs: str, output: str) -> KernelSignature:
        """Parse the texts of the command line.

        Raises:
            InputError: one is malformed, or no kernel is known of this form; says what to write.
        """
        _check_name("name", name)
        if importlib.util.find_spec(name) is not None and not Path(f"{name}.py").exists():
            raise InputError(f"new: {name!r} is the name of an installed module; take another")
        tensors = tuple(map(_parse_input, split_list(inputs.strip().removesuffix(","))))
        if not tensors:
            raise InputError(f"--inputs: empty; write {_FORM}")
        unique("--inputs", ((one.name, one) for one in tensors))
        out = _parse_sizes("--output", output)
        sizes = {*out, *(size for one in tensors for size in one.sizes)}
        names = {one.name for one in tensors}
        if clash := names & sizes:
            raise InputError(f"--inputs: {min(clash)} is both a tensor and a size; rename one")
        if clash := {f"{one}_ptr" for one in names} & {*names, *sizes}:
            raise InputError(f"--inputs: {min(clash)} is a pointer's name in the kernel; rename it")
        first = tensors[0].sizes
        over = first if first[:-1] == out else out
        for one in tensors:
            known = [size for size in over if size in one.sizes]
            if list(one.sizes) != known:
                raise InputError(
                    f"--inputs: {one.name} {_tuple(one.sizes)} does not broadcast to "
                    f"{_tuple(over)}: its sizes must be some of these, in their order; or give an "
                    "output without the last size of the first input, for a sum of rows"
                )
        missing = [size for size in over if all(size not in one.sizes for one in tensors)]
        if missing:
            raise InputError(f"--output: no input has the size {missing[0]}")
        if len(over) > max(_SIZES):
            raise InputError(f"--output: {len(over)} sizes; at most {max(_SIZES)} are known")
        signature = cls(name, tensors, out, over)
        _check_clashes(signature)
        return signature


def _check_name(what: str, name: str) -> None:
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise InputError(f"new: the {what} {name!r} is not a Python name, such as scale_rows")
    if name.startswith("_"):
        raise InputError(f"new: the {what} {name!r} begins with _, as names of the files do")


def _check_clashes(signature: KernelSignature) -> None:
    """Refuse names that mean something else where the written module uses them.

    The module is written with other names, and its symbols are read: a name of the user's takes no
    symbol's place.
    """
    other = {size: f"_{place}" for place, size in enumerate(signature.over)}
    renamed = KernelSignature(
        "_kernel",
        tuple(
            KernelInput(f"_t{place}", tuple(other[size] for size in one.sizes), one.dtype)
            for place, one in enumerate(signature.inputs)
        ),
        tuple(other[size] for size in signature.output),
        tuple(other.values()),
    )
    module = symtable.symtable(kernel_files(renamed)["_kernel.py"], "_kernel.py", "exec")
    functions = {one.get_name(): one for one in module.get_children()}
    taken = {one.get_name() for one in module.get_symbols()} | {"conftest"}
    for function in functions.values():
        taken |= {one.get_name() for one in function.get_symbols() if one.is_global()}
    own = {
        one.get_name()
        for name in ("kernel", "baseline", "_kernel")
        for one in functions[name].get_symbols()
    }
    tensors = [one.name for one in signature.inputs]
    for what, names, meant in (
        ("name", [signature.name], taken),
        ("input", tensors, own | {one.removesuffix("_ptr") for one in own if one[-4:] == "_ptr"}),
        ("size", signature.over, own | _OPTIONS),
    ):
        if clash := sorted(meant.intersection(names)):
            raise InputError(f"new: the {what} {clash[0]!r} has a meaning in the files; rename it")


def _parse_input(text: str) -> KernelInput:
    match = _INPUT.fullmatch(text)
    if match is None:
        raise InputError(f"--inputs: {text!r} is not NAME: (SIZES) DTYPE; write {_FORM}")
    _check_name("input", match[1])
    dtype = canonical_dtype(match[3].lower())
    if dtype not in _DTYPES:
        raise InputError(f"--inputs: {match[1]} is {dtype}; it must be one of {', '.join(_DTYPES)}")
    return KernelInput(match[1], _parse_sizes(f"--inputs: {match[1]}", match[2]), dtype)


def _parse_sizes(what: str, text: str) -> tuple[str, ...]:
    inner = re.fullmatch(r"\((.*?),?\s*\)", text.strip())
    sizes = tuple(split_list(inner[1])) if inner else ()
    if not sizes or not all(sizes) or len(set(sizes)) < len(sizes):
        raise InputError(f"{what}: {text!r} is no list of different sizes, such as (M, N) or (M,)")
    for size in sizes:
        _check_name("size", size)
    return sizes


def write_kernel(signature: KernelSignature, folder: Path) -> tuple[Path, ...]:
    """Write the files of a new kernel, all of them or none.

    Raises:
        InputError: one exists, or cannot be written.
    """
    texts = kernel_files(signature)
    paths = [folder / name for name in texts]
    for path in paths:
        if path.exists() or path.is_symlink():
            raise InputError(f"new: {path} exists; take another name, or remove it")
    written: list[Path] = []
    try:
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(path, text.encode())
            written.append(path)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise InputError(f"new: {error.filename or folder}: {error.strerror}") from error
    return tuple(paths)


def kernel_files(signature: KernelSignature) -> dict[str, str]:
    """Return the texts of the files by name: module, test, benchmark."""
    values, name = _values(signature), signature.name
    kernel = _template("rows" if signature.sums_rows else "elements").substitute(values)
    return {
        f"{name}.py": _template("module").substitute(values, kernel=kernel),
        f"test_{name}.py": _template("test").substitute(values),
        f"bench_{name}.py": _template("bench").substitute(values),
    }


def _template(name: str) -> Template:
    return Template((Path(__file__).parent / "templates" / f"{name}.txt").read_text())


def _values(signature: KernelSignature) -> dict[str, str]:
    """Return what the templates leave open."""
    tensors, over = signature.inputs, signature.over
    names = [one.name for one in tensors]
    sign = " * " if signature.sums_rows else " + "
    result = sign.join(names) if len(names) > 1 else f"2 * {names[0]}"
    baseline = sign.join(map(partial(_broadcast, over=over), tensors))
    baseline = baseline if len(names) > 1 else f"2 * {baseline}"
    numbers = dict(zip(over, _SIZES[len(over)], strict=True))
    rows = " * ".join(f'values["{size}"]' for size in over[: len(over) - signature.sums_rows])
    return {
        "name": signature.name,
        "title": f"Sums of rows of {result}" if signature.sums_rows else f"Elements of {result}",
        "shapes": ", ".join(f"{one.name} is {_tuple(one.sizes)}" for one in tensors),
        "output": _tuple(signature.output),
        "first": names[0],
        "pointers": "\n".join(f"    {name}_ptr," for name in names),
        "parameters": "\n".join(f"    {size}," for size in over),
        "loads": _loads(signature),
        "result": result,
        "count": " * ".join(over),
        "last": over[-1],
        "dtypes": _quoted(dict.fromkeys((tensors[0].dtype, *_DTYPES))),
        "shape": ", ".join(f'"{size}": {number}' for size, number in numbers.items()),
        "sizes": "\n".join(
            f'    "{one.name}": ({_quoted(one.sizes)}{"," * (len(one.sizes) == 1)}),'
            for one in tensors
        ),
        "grid": rows if signature.sums_rows else f'triton.cdiv({rows}, values["BLOCK"])',
        "made": "\n".join(_made(one, tensors[0].dtype) for one in tensors),
        "names": ", ".join(names),
        "baseline": f"({baseline}).sum(-1)" if signature.sums_rows else baseline,
        "given": ", ".join(f"{name}={name}" for name in names),
        "out": _tuple([f'sizes["{size}"]' for size in signature.output]),
        "keys": _quoted(over),
    }


def _loads(signature: KernelSignature) -> str:
    """Return the lines that load the inputs, as fp32."""
    indent = " " * (8 if signature.sums_rows else 4)
    other = ", other=0.0" if signature.sums_rows else ""
    lines = []
    for one in signature.inputs:
        place = _offset(one.sizes, signature.over)
        lines += [
            f"{one.name} = tl.load({one.name}_ptr + {place}, mask=inside{other})",
            f"{one.name} = {one.name}.to(tl.float32)",
        ]
    return "\n".join(indent + line for line in lines)


def _offset(sizes: tuple[str, ...], over: tuple[str, ...]) -> str:
    """Return an input's index as an expression of `at`, the index over all sizes."""
    if sizes == over:
        return "at"
    parts = []
    for place, size in enumerate(sizes):
        later = over[over.index(size) + 1 :]
        index = f"at // {_product(later)} % {size}" if later else f"at % {size}"
        factor = "".join(f" * {name}" for name in sizes[place + 1 :])
        parts.append(f"({index}){factor}")
    return " + ".join(parts)


def _product(sizes: Sequence[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"({' * '.join(sizes)})"


def _broadcast(one: KernelInput, over: tuple[str, ...]) -> str:
    """Return an input as PyTorch broadcasts it to all sizes."""
    if one.sizes == over[len(over) - len(one.sizes) :]:
        return one.name
    places = ", ".join(":" if size in one.sizes else "None" for size in over)
    return f"{one.name}[{places}]"


def _made(one: KernelInput, first: str) -> str:
    sizes = ", ".join(f'shape["{size}"]' for size in one.sizes)
    dtype = "torch_dtype(dtype)" if one.dtype == first else f"torch.{TORCH_NAMES[one.dtype]}"
    return f'        "{one.name}": torch.randn({sizes}, device=device).to({dtype}),'


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _tuple(sizes: Sequence[str]) -> str:
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
