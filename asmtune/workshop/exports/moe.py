"""The JSON files that the fused_moe kernels of vLLM and SGLang read.

A file is named by its experts E, intermediate size N, device, dtype and quantisation block, and
maps the number of tokens M to a config:

    vLLM     E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json
    SGLang   configs/triton_3_6_0/E=8,N=7168,device_name=NVIDIA_H200,...,block_shape=[128, 128].json

vLLM looks in the folder that VLLM_TUNED_CONFIG_FOLDER names, and has one name for all devices of
the H200 family. SGLang looks in `configs` of the folder that SGLANG_MOE_CONFIG_DIR names, first in
that of its own Triton.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from asmtune.base.errors import InputError
from asmtune.base.json_codec import shown
from asmtune.base.text import did_you_mean
from asmtune.core.config import AMD_OPTIONS, OPTION_AXES, Config
from asmtune.core.keys.buckets import bucket_of
from asmtune.core.records.tuned import TuneKey, TuneRecord

Engine = Literal["vllm", "sglang"]

_BLOCKS: Final = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_FIELDS: Final = (*_BLOCKS, "SPLIT_K", "USE_TMA", *AMD_OPTIONS, *OPTION_AXES)
"""Values that a config may hold: the kernels take all of them by keyword, and no other.

vLLM's has no USE_TMA, and vLLM launches it with SPLIT_K=1 whatever a file says."""

_SIZES: Final[Mapping[str, tuple[str, ...]]] = {
    "M": ("M", "num_tokens"),
    "E": ("E", "num_experts"),
    "N": ("N", "intermediate_size"),
}
"""Arguments that a size is read from unless the user says otherwise."""

_NAMES: Final = (*_SIZES, "dtype", "block_shape", *_BLOCKS, "SPLIT_K")
_FUSED: Final = "fused_moe_kernel"
"""The kernel of both engines, whose own N are the rows of its weights."""


@dataclass(frozen=True)
class MoeMap:
    """Places of the parts of a file's name and of its configs, as the user says.

    Attributes:
        values: by the name on the engine's side: a product of arguments and whole numbers
            (`num_valid_tokens/8`), the name of a config's value, or text.
    """

    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Iterable[str]) -> MoeMap:
        """Parse options such as `M=num_tokens`.

        Raises:
            InputError: one is not NAME=VALUE, or names nothing of a file.
        """
        values: dict[str, str] = {}
        for option in options:
            name, equals, value = (text.strip() for text in option.partition("="))
            if not equals or not value:
                raise InputError(f"--map {option!r} is not NAME=VALUE, such as M=num_tokens")
            if name not in _NAMES:
                hint = did_you_mean(name, _NAMES)
                raise InputError(f"--map {name}: expected one of {', '.join(_NAMES)}{hint}")
            if name in values:
                raise InputError(f"--map {name} is given twice")
            values[name] = value
        return cls(values)

    def size(self, name: str, key: TuneKey) -> int:
        """Return M, E or N of a key.

        Raises:
            InputError: the key does not say it, or it is no whole number above 0.
        """
        sizes = _sizes_of(key)
        text = self.values.get(name) or self._usual(name, key, sizes)
        if text is None:
            example = "N=N/2 for the first product" if name == "N" else f"{name}=ARGUMENT"
            raise InputError(
                f"kernel {key.kernel}: no argument of its key is known to be {name} (its key has "
                f"{', '.join(key.shape) or 'none'}): say which, --map {example}, "
                f"or --map {name}=NUMBER"
            )
        value = _product(text, sizes, f"kernel {key.kernel}: --map {name}={text}")
        if value < 1:
            raise InputError(f"kernel {key.kernel}: {name}={text} is {value}: expected 1 or more")
        return value

    def _usual(self, name: str, key: TuneKey, sizes: Mapping[str, Any]) -> str | None:
        if key.kernel.rpartition(".")[2].startswith(_FUSED):
            if name == "N":
                return None
            if name == "M" and {"num_valid_tokens", "top_k"} <= sizes.keys():
                return "num_valid_tokens/top_k"
        return next((usual for usual in _SIZES[name] if usual in sizes), None)

    def dtype(self, key: TuneKey) -> str | None:
        """Return the dtype of a file's name; None for 16 bits, which no name has.

        Raises:
            InputError: it cannot be read off the key's dtypes.
        """
        text = self.values.get("dtype")
        if text is not None:
            if not re.fullmatch(r"\w+", text):
                raise InputError(f"--map dtype={text}: expected a name such as fp8_w8a8, or none")
            return None if text == "none" else text
        dtypes = list(key.dtypes.values())
        narrow = [d for d in dtypes if re.match(r"fp[48]|[iu][48]$", d)]
        if not narrow:
            wide = not any(d in ("fp16", "bf16") for d in dtypes) and "fp32" in dtypes
            return "float32" if wide else None
        if len(narrow) > 1 and all(d.startswith("fp8") for d in narrow):
            return "fp8_w8a8"
        if len(narrow) > 1 and set(narrow) == {"i8"}:
            return "int8_w8a8"
        raise InputError(
            f"kernel {key.kernel}: dtypes {shown(dict(key.dtypes))} do not say how it quantises: "
            "give --map dtype=int8_w8a16, for instance, or --map dtype=none"
        )

    def block_shape(self, key: TuneKey) -> tuple[int, int] | None:
        """Return the quantisation block of a file's name; None if it names none.

        Raises:
            InputError: it is no two whole numbers.
        """
        sizes = _sizes_of(key)
        text = self.values.get("block_shape")
        if text is None and {"group_n", "group_k"} <= sizes.keys():
            text = "group_n,group_k"
        if text is None or text == "none":
            return None
        where = f"kernel {key.kernel}: --map block_shape={text}"
        parts = text.strip("[]").split(",")
        if len(parts) != 2:
            raise InputError(f"{where}: expected two, such as 128,128 or group_n,group_k")
        rows, columns = (_product(part.strip(), sizes, where) for part in parts)
        return (rows, columns) if rows > 0 and columns > 0 else None

    def fields(self, config: Config, engine: Engine, where: str) -> dict[str, Any]:
        """Return a config as a file of an engine holds it.

        Raises:
            InputError: it lacks a block size, or has a value that the engine does not take.
        """
        ours = {self.values.get(name, name): name for name in (*_BLOCKS, "SPLIT_K")}
        values = {
            ours.get(name, name): value
            for name, value in config.to_dict().items()
            if name in ours or name not in self.values
        }
        missing = next((name for name in _BLOCKS if name not in values), None)
        if missing is not None:
            raise InputError(
                f"{where}: its configs have no {missing} (they have {', '.join(config.kwargs)}): "
                f"say which it is, --map {missing}=NAME"
            )
        unknown = next((name for name in values if name not in _FIELDS), None)
        if engine == "vllm" and unknown is None:
            split = values.get("SPLIT_K", 1) != 1
            unknown = "USE_TMA" if "USE_TMA" in values else "SPLIT_K" if split else None
        if unknown is not None:
            raise InputError(
                f"{where}: its configs have {unknown}={shown(values[unknown])}, which the "
                f"fused_moe kernel of {engine} does not take; export another kernel, or leave the "
                "axis out"
            )
        order = [*_BLOCKS, *(name for name in _FIELDS if name not in _BLOCKS)]
        return {name: values[name] for name in order if name in values}


def moe_files(records: Iterable[TuneRecord], names: MoeMap, engine: Engine) -> dict[str, str]:
    """Write the files of an engine: their texts by their paths below its folder.

    Raises:
        InputError: a record does not say what a name needs, or two say different configs for one
            file and number of tokens.
    """
    files: dict[str, dict[int, tuple[dict[str, Any], TuneRecord]]] = {}
    for record in records:
        path = _path(record, names, engine)
        fields = names.fields(record.winner.plain, engine, f"kernel {record.key.kernel}")
        tokens = names.size("M", record.key)
        earlier = files.setdefault(path, {}).setdefault(tokens, (fields, record))
        if earlier[0] != fields:
            keys = [f"{r.key.kernel} {dict(r.key.shape)}" for r in (earlier[1], record)]
            raise InputError(
                f"{path} has one config for M={tokens}, and two keys differ: {' and '.join(keys)}; "
                "choose with --kernel, or --only NAME=VALUE"
            )
    return {
        path: json.dumps({str(m): by_tokens[m][0] for m in sorted(by_tokens)}, indent=4) + "\n"
        for path, by_tokens in files.items()
    }


def _path(record: TuneRecord, names: MoeMap, engine: Engine) -> str:
    key = record.key
    device = key.device.replace(" ", "_")
    if engine == "vllm" and "H200" in device.split("_"):
        device = "NVIDIA_H200"
    if not re.fullmatch(r"[^,/\0]+", device):
        raise InputError(f"kernel {key.kernel}: device {key.device!a} cannot be in a file's name")
    words = [f"E={names.size('E', key)}", f"N={names.size('N', key)}", f"device_name={device}"]
    dtype, block = names.dtype(key), names.block_shape(key)
    if dtype is not None:
        words.append(f"dtype={dtype}")
    if block is not None:
        gap = "" if engine == "vllm" else " "
        words.append(f"block_shape=[{block[0]},{gap}{block[1]}]")
    if engine == "vllm":
        return f"{','.join(words)}.json"
    version = record.provenance.triton
    if not re.fullmatch(r"\d+\.\d+\.\d+[\w.+-]*", version):
        raise InputError(f"kernel {key.kernel}: {version!a} is no version of Triton")
    folder = f"configs/triton_{version.replace('.', '_')}"
    return f"{folder}/{','.join(words)}.json"


def _sizes_of(key: TuneKey) -> dict[str, Any]:
    """Return the values of a key by argument: a bucket counts by its upper end."""
    sizes = {}
    for part, value in key.shape.items():
        bucket = bucket_of(part)
        if bucket is not None and bucket.argument is not None:
            sizes[bucket.argument] = value
    return sizes | dict(key.shape)


def _factors(text: str) -> list[tuple[str, bool]]:
    """Split a product: each factor, and whether it multiplies or divides."""
    words = re.split(r"([*/])", text)
    signs = ["*", *words[1::2]]
    return [(word.strip(), sign == "*") for word, sign in zip(words[::2], signs, strict=True)]


def _product(text: str, sizes: Mapping[str, Any], where: str) -> int:
    over, under = 1, 1
    for word, up in _factors(text):
        value = int(word) if re.fullmatch(r"\d{1,18}", word) else sizes.get(word)
        if value is None and word not in sizes:
            hint = did_you_mean(word, sizes)
            raise InputError(
                f"{where}: the key has no {word or 'such name'}: it has "
                f"{', '.join(map(str, sizes)) or 'none'}{hint}"
            )
        if type(value) is not int:
            raise InputError(f"{where}: {word} is {shown(value)}: expected a whole number")
        over, under = (over * value, under) if up else (over, under * value)
    if under == 0 or over % under:
        raise InputError(f"{where}: {over}/{under} is no whole number")
    return over // under
