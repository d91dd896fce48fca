"""Modules that `website.session` imports once, so that the pages' code need not each time."""

import torch  # noqa: F401
import triton
import triton.language  # noqa: F401

import asmtune.predict.prune
import asmtune.runtime
import asmtune.runtime.offline.tuning_queue
import asmtune.tuning.session  # noqa: F401
from asmtune.cli.app import app  # noqa: F401
