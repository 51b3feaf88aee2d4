"""A model of delivery: whatever clients do and whatever befalls the server, each client holds what is stored."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.delivery.machine import Delivery

SECONDS = float(os.environ.get("TURNWIRE_MODEL_SECONDS", "0"))
"""How long other and other runs are drawn. A failure then tells its seed and what happened, and is not made shorter."""

SEED = os.environ.get("TURNWIRE_MODEL_SEED", "")
"""Of the first runs; each further group of runs takes the next one. Without seconds: runs those of the seed alone, and
looks for a short run that fails."""

RUNS, STEPS = 2, 20
"""Runs of one seed, of which the first is the simplest one, and steps of a run."""

LONG_RUNS, LONG_STEPS = 6, 40
"""When other ones are drawn."""


def _run(seed: int, runs: int, steps: int, phases: tuple[Phase, ...]) -> None:
    """Draws a few runs."""
    Delivery._hypothesis_internal_use_seed = seed
    chosen = settings(
        max_examples=runs,
        stateful_step_count=steps,
        phases=phases,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(Delivery, settings=chosen)
    except BaseException as error:
        error.add_note(f"TURNWIRE_MODEL_SEED={seed}; the first failure:\n{Delivery.failure}")
        raise


@pytest.mark.timeout(SECONDS + 900)
async def test_every_client_holds_what_is_stored(tmp_path: Path) -> None:
    """Through kills, stops and restored backups; each named request counts once, and nothing acknowledged is lost."""
    Delivery.loop, Delivery.folder = asyncio.get_running_loop(), tmp_path
    Delivery.counts.clear()
    Delivery.failure = ""
    seed = int(SEED or 1)
    if not SECONDS:
        phases = (Phase.generate, Phase.shrink) if SEED else (Phase.generate,)
        await asyncio.to_thread(_run, seed, *((LONG_RUNS, LONG_STEPS) if SEED else (RUNS, STEPS)), phases)
        return
    ends, first = time.monotonic() + SECONDS, seed
    while time.monotonic() < ends:
        await asyncio.to_thread(_run, seed, LONG_RUNS, LONG_STEPS, (Phase.generate,))
        seed += 1
    print(f"\nseeds {first} to {seed - 1}: {dict(Delivery.counts)}")
