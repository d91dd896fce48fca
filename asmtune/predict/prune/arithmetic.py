"""The funnel's first stage: rank every config by the arithmetic of its tile, without TTGIR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from asmtune.base.errors import ParseError
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.predict.features.tile.estimate import Options, estimate
from asmtune.predict.features.tile.facts import TileFacts, tile_facts
from asmtune.predict.features.tile.interpolate import Places, Tile, carried_over
from asmtune.predict.prune.front import Front
from asmtune.predict.score.roofline import predict

MOST_TILES: Final = 24
"""Tiles whose TTIR is made; other tiles take their numbers from these. One takes 15 to 30 ms."""


@dataclass(frozen=True)
class Unread:
    """Why the arithmetic cannot read a kernel."""

    reason: str


def estimated(front: Front, configs: Sequence[Config]) -> list[Verdict] | Unread:
    """Return a verdict with estimated features on each config, or why there can be none.

    Configs that the rules of the config alone refuse are dropped; nothing else is.

    Raises:
        ProblemError: arguments and config do not fit the kernel.
    """
    verdicts = [front.by_rules(config) for config in configs]
    left = [place for place, verdict in enumerate(verdicts) if verdict.kept]
    if any(configs[place].ir_override is not None for place in left):
        return Unread("a config has hand-edited IR")
    tiles: dict[Tile, list[int]] = {}
    for place in left:
        tiles.setdefault(tuple(sorted(configs[place].kwargs.items())), []).append(place)
    places = Places(list(tiles))
    members = list(tiles.values())
    facts: dict[int, TileFacts] = {}
    reason = ""
    for tile in places.sample(MOST_TILES):
        read = _facts(front, configs[members[tile][0]])
        if isinstance(read, TileFacts):
            facts[tile] = read
        else:
            reason = read
    if not facts:
        return Unread(reason or "no config is left")
    target = front.target
    for structure, (own, numbers) in carried_over(places, facts).items():
        chosen = [place for tile in own for place in members[tile]]
        rows = np.repeat(np.arange(len(own)), [len(members[tile]) for tile in own])
        columns = estimate(structure, numbers[rows], _options(front, configs, chosen), target)
        table = np.stack(list(columns.values()), axis=1).tolist()
        for place, row in zip(chosen, table, strict=True):
            features = Features(dict(zip(columns, row, strict=True)))
            verdicts[place] = _verdict(configs[place], features, front)
    return verdicts


def _facts(front: Front, config: Config) -> TileFacts | str:
    request = front.lowering.request(config)
    if isinstance(request, Failure):
        return str(request)
    work = front.judge.work(config, request.ttir)
    kernel = front.kernels.get(request.ttir)
    if kernel is None:
        return "its TTIR cannot be read"
    try:
        return tile_facts(kernel, work)
    except (ParseError, LookupError, ValueError) as error:
        return f"its TTIR cannot be read: {error}"


def _options(front: Front, configs: Sequence[Config], chosen: Sequence[int]) -> Options:
    problem = front.problem
    sizes: dict[Tile, float] = {}
    programs = []
    for place in chosen:
        config = configs[place]
        key = tuple(sorted(config.kwargs.items()))
        if key not in sizes:
            x, y, z = required(
                f"grid of {problem.name}", lambda config=config: problem.programs(config)
            )
            sizes[key] = float(x * y * z)
        programs.append(sizes[key])
    own = [configs[place] for place in chosen]
    return Options(
        np.array([float(config.num_warps) for config in own]),
        np.array([float(config.num_stages) for config in own]),
        np.array([float(config.maxnreg or 0) for config in own]),
        np.array(programs),
    )


def _verdict(config: Config, features: Features, front: Front) -> Verdict:
    prediction = predict(features, front.target)
    return Verdict(
        config,
        kept=True,
        features=features,
        predicted_us=round(prediction.us, 2),
        bottleneck=prediction.bottleneck,
    )
